"""Plans the services by which clients outside of Kubernetes reach each broker: created, changed and deleted.

They are created with the pods or later, and deleted after them. Nothing depends on them: a broker whose
advertised address has no service yet is still reached by all clients inside of Kubernetes.
"""

from __future__ import annotations

from tidelog_operator.actions import ApplyObject, ClusterAction, DeleteObject
from tidelog_operator.model import ClusterObject, Manifest, ObjectKey
from tidelog_operator.plan.owned import Owned
from tidelog_operator.resources.listeners import listener_services, must_recreate


def plan_listeners(cluster: ClusterObject, owned: Owned, pods: int) -> tuple[ClusterAction, ...]:
    """`pods`: the desired number of pods of the StatefulSet. The actions are independent of each other."""
    # Brokers that will exist count too: another client may have removed their pods for a moment.
    wanted = {
        one["metadata"]["name"]: one for one in listener_services(cluster, max(pods, cluster.spec.brokers))
    }
    there = owned.listener_services(cluster)
    over = {name for name, one in there.items() if name not in wanted or must_recreate(one, wanted[name])}
    leaving = {name for name in there if "deletionTimestamp" in there[name]["metadata"]}
    # Deletions come first: a new service may need the port of a deleted one. A service is created again when
    # the old one is gone.
    return (
        *(_delete(cluster, there[name]) for name in sorted(over - leaving)),
        *(
            ApplyObject(one)
            for name, one in wanted.items()
            if name not in over | leaving and not owned.has(one)
        ),
    )


def _delete(cluster: ClusterObject, service: Manifest) -> ClusterAction:
    meta = service["metadata"]
    return DeleteObject("Service", ObjectKey(cluster.key.namespace, meta["name"]), meta["uid"])
