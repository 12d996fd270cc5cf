"""The lowest number of pods that the admission policy allows for a StatefulSet of brokers (K1).

One ConfigMap per namespace has a key per StatefulSet. It is the parameter of the policy, which allows every
change of a StatefulSet without a key, and denies all changes where the ConfigMap is missing. The ConfigMap
belongs to no Cluster; each Cluster applies its own key with its own field manager.
"""

from __future__ import annotations

from typing import Final

from tidelog_operator.model import Manifest, ObjectKey
from tidelog_operator.resources.naming import MANAGED_BY, MANAGED_LABEL

COUNTS_NAME: Final = "tidelog-broker-counts"


def counts_map(cluster: ObjectKey, count: int | None) -> Manifest:
    """Returns the part of the ConfigMap that one Cluster applies; None: no key any more."""
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
    """Returns the field manager, by which the API server knows which Cluster owns a key."""
    return f"tidelog-operator-{cluster.name}"
