"""The marker outside all volumes that says whether the brokers ever formed a cluster (M1).

It goes from nothing to `never formatted` to `formatted`, and never back: a broker 0 that comes back with an
empty volume must not begin a second cluster beside the one that its neighbours keep.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidelog_operator.model import ClusterObject, Manifest
from tidelog_operator.resources.naming import formation_name, manifest
from tidelog_operator.resources.settings import FORMATION_FILE

NEVER: Final = "never formatted"
FORMATTED: Final = "formatted"


@dataclass(frozen=True, slots=True)
class Formation:
    state: str
    cluster_id: bytes

    @property
    def formatted(self) -> bool:
        return self.state == FORMATTED


def chosen_id(cluster: ClusterObject) -> bytes:
    """That of the cluster that its brokers will form: of this object, and of no other one of its name."""
    return UUID(cluster.uid).bytes


def formation_map(cluster: ClusterObject, formation: Formation) -> Manifest:
    text = json.dumps({"state": formation.state, "clusterId": str(UUID(bytes=formation.cluster_id))})
    return manifest(cluster, "v1", "ConfigMap", formation_name(cluster), {"data": {FORMATION_FILE: text}})


def read_formation(found: Manifest) -> Formation:
    """Raises `ValueError` if somebody else wrote it."""
    try:
        said = json.loads(found["data"][FORMATION_FILE])
        if said["state"] not in (NEVER, FORMATTED):
            raise ValueError(f"the state is {said['state']!r}")
        return Formation(said["state"], UUID(said["clusterId"]).bytes)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"the ConfigMap {found['metadata']['name']!r} does not say whether the brokers formed a cluster "
            f"({error}); delete it once the brokers serve, and the operator writes it again"
        ) from None
