"""Below how many pods nobody but the operator may take a StatefulSet of brokers (K1).

One ConfigMap in each namespace, a key for each StatefulSet: the parameter of an admission policy, which
passes what has no key and refuses everything where the ConfigMap is missing. It belongs to no Cluster, and
each Cluster applies its own key by a field manager of its own.
"""

from __future__ import annotations

from typing import Final

from tidelog_operator.model import Manifest, ObjectKey
from tidelog_operator.resources.naming import MANAGED_BY, MANAGED_LABEL

COUNTS_NAME: Final = "tidelog-broker-counts"


def counts_map(cluster: ObjectKey, count: int | None) -> Manifest:
    """What one Cluster says of it; None: nothing any more."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": COUNTS_NAME,
            "namespace": cluster.namespace,
            "labels": {MANAGED_LABEL: MANAGED_BY},
        },
        "data": {} if count is None else {cluster.name: str(count)},
    }


def counts_manager(cluster: ObjectKey) -> str:
    """The name by which the API server knows which key is whose."""
    return f"tidelog-operator-{cluster.name}"
