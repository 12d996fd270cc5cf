"""Tries the whole product on a real Kubernetes cluster, from outside: kubectl, helm, the library, and load.

- `cluster`  a Kubernetes cluster on this machine
- `load`     the load and its judgement
- `kube`     kubectl and helm
- `lake`     a volume for Ingestions, and a pod that compares its files with a stream
- `release`  a release of the chart
- `earlier`  the version that an upgrade starts from

Nothing here imports the broker, the operator or the Spark jobs.
"""
