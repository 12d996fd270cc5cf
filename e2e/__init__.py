"""Tries the whole product on a real Kubernetes cluster, from outside: kubectl, helm, the library, and load.

- `cluster`  a Kubernetes cluster on this machine
- `load`     the load and its judgement
- `kube`     kubectl and helm
- `ingestion`  Ingestions as users write them, and what their statuses say
- `lake`     a volume for Ingestions, and pods that compare its files and tables with a stream
- `store`    an object store in a pod
- `release`  a release of the chart
- `earlier`  the version that an upgrade starts from

Nothing here imports the broker, the operator or the Spark jobs.
"""
