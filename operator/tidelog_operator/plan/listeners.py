"""The services by which clients outside of Kubernetes reach each broker: made, changed and taken away.

They come with the pods or after them, and go after them. Nothing waits for them, and nothing rests on them: a
broker that advertises an address where there is no service yet is reached by everybody inside.
"""

from __future__ import annotations

from tidelog_operator.actions import ApplyObject, ClusterAction, DeleteObject
from tidelog_operator.model import ClusterObject, Manifest, ObjectKey
from tidelog_operator.plan.owned import Owned
from tidelog_operator.resources.listeners import listener_services, must_recreate


def plan_listeners(cluster: ClusterObject, owned: Owned, pods: int) -> tuple[ClusterAction, ...]:
    """`pods`: as many as the StatefulSet is to have. Each action can be done whatever becomes of others."""
    # Of brokers that are to come, too: somebody else may have taken their pods away, for a moment.
    wanted = {
        one["metadata"]["name"]: one for one in listener_services(cluster, max(pods, cluster.spec.brokers))
    }
    there = owned.listener_services(cluster)
    over = {name for name, one in there.items() if name not in wanted or must_recreate(one, wanted[name])}
    leaving = {name for name in there if "deletionTimestamp" in there[name]["metadata"]}
    # First what goes: it may have the port of one that comes. What takes its place comes when it is gone.
    return (
        *(_without(cluster, there[name]) for name in sorted(over - leaving)),
        *(
            ApplyObject(one)
            for name, one in wanted.items()
            if name not in over | leaving and not owned.has(one)
        ),
    )


def _without(cluster: ClusterObject, service: Manifest) -> ClusterAction:
    meta = service["metadata"]
    return DeleteObject("Service", ObjectKey(cluster.key.namespace, meta["name"]), meta["uid"])
