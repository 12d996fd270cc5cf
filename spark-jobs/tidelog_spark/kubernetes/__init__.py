"""The driver of an `Ingestion` in its pod.

What belongs here: what only the pod knows, and what Kubernetes must know about the job. What does not belong
here: the job itself (`tidelog_spark.jobs`), which this package starts as a process.

- `driver`    prepares Spark's settings, runs the job, and leaves its last words for Kubernetes
- `job`       the program that spark-submit runs: `tidelog_spark.jobs`
- `reports`   the report of the job: served while it runs, and shortened for the termination message
"""
