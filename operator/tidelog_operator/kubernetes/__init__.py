"""The Kubernetes API as the operator uses it.

What belongs here: requests to the API server, and what comes back from it. What does not belong here:
decisions (`plan`), and what the operator says about its work (`reporting`).

- `api`              requests; every write depends on the version of the object that was observed
- `handlers`         which resources are watched; the only module that imports kopf
- `objects`          the cache that the watches fill
- `pods`, `jobs`    pods of drivers and Jobs as values
- `leader_election`  a Lease decides which operator is active
- `definitions`      applies the CustomResourceDefinitions from files
"""
