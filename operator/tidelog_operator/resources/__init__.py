"""The manifests of the objects that a Cluster or an Ingestion needs. Pure: equal specs give equal manifests.

What belongs here: what each object contains. What does not belong here: when it is applied (`plan`), and how
(`apply`). Each manifest sets every field that the operator owns (server-side apply), and carries a hash of
itself: `comparing.matches` says whether an existing object has all of it.

- `naming`        names, labels, ports, and the metadata that every manifest has
- `stateful_set`  the pods and volumes of the brokers
- `settings`      the brokers' settings file
- `formation`     the marker that says whether the brokers ever formed a cluster (M1)
- `services`      services and disruption budget
- `listeners`     services for clients outside of Kubernetes
- `spark_files`   the ConfigMap of an Ingestion: the job's file, Spark's settings, executors
- `runs`          the CronJob, Jobs and driver pod of an Ingestion
- `path_claims`   the paths of an Ingestion that no two drivers may write to
- `counts`        the lowest number of pods that the admission policy allows (K1)
- `comparing`     compares an existing object with a manifest
"""
