"""The marker outside all volumes that says whether the brokers ever formed a cluster (M1).

It changes from absent to `never formatted` to `formatted`, and never back. So if broker 0 comes back with an
empty volume, it cannot form a second cluster beside the one that the other brokers keep.
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
    """Returns the id of the cluster that the brokers will form: it belongs to this object, and not to a later
    one of the same name."""
    return UUID(cluster.uid).bytes


def formation_map(cluster: ClusterObject, formation: Formation) -> Manifest:
    text = json.dumps({"state": formation.state, "clusterId": str(UUID(bytes=formation.cluster_id))})
    return manifest(cluster, "v1", "ConfigMap", formation_name(cluster), {"data": {FORMATION_FILE: text}})


def read_formation(found: Manifest) -> Formation:
    """Parses the marker. Raises `ValueError` if another client wrote something else into it."""
    try:
        content = json.loads(found["data"][FORMATION_FILE])
        if content["state"] not in (NEVER, FORMATTED):
            raise ValueError(f"its state is {content['state']!r}")
        return Formation(content["state"], UUID(content["clusterId"]).bytes)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The ConfigMap {found['metadata']['name']} does not say whether the brokers have formed a "
            f"cluster ({_reason(error)}). When the brokers answer clients, delete it: the operator writes "
            "it again."
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the field {error.args[0]} is missing"
    return str(error)
