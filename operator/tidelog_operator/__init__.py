"""The operator: makes the brokers on Kubernetes match the Clusters and Streams (DESIGN section 12).

What belongs here: the desired state (what the objects ask for), the observed state (what exists), and the
actions that remove the difference. What does not belong here: how brokers replicate, elect leaders and
recover. Brokers do that without Kubernetes; the operator only tells them which brokers hold which replicas.
The operator keeps no state of its own: after a crash at any point it observes again and continues.

One reconciliation of a Cluster reads, plans, and then writes:

- `model`, `listeners`, `field_values`  manifests as values
- `ingestions`                        Ingestions, their runs and reports as values
- `drivers`                           asks the drivers of Ingestions for their reports
- `brokers`, `sizes`                    the client of a Cluster's brokers, and their last answers
- `plan/`                               pure: from the observed state to actions
- `resources/`                          pure: the manifests of the objects that a Cluster needs
- `actions`                             everything that a plan can ask for, as values
- `apply`                               executes actions; the only one that changes brokers and their objects
- `reporting/`                          statuses, events, metrics and log lines

Around it:

- `reconcile`       one reconciliation of one Cluster and its Streams
- `reconcile_ingestions`  one reconciliation of the Ingestions of one Cluster
- `reconcile_loop`  one task per Cluster: runs reconciliations after changes, periodically, and after failures
- `kubernetes/`     the API: requests, watches, the cache of watched objects, leader election
- `http`            serves /metrics, /healthz and /readyz
- `__main__`        the command `tidelog-operator`, which connects all parts
"""
