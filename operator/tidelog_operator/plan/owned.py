"""What stands in Kubernetes for a Cluster, as plans look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog_operator.model import BrokerPod, Claim, ClusterObject, Manifest
from tidelog_operator.resources.comparing import matches
from tidelog_operator.resources.formation import Formation, read_formation
from tidelog_operator.resources.naming import LISTENER_LABEL, ManifestId, formation_name, manifest_id


@dataclass(frozen=True, slots=True)
class Owned:
    """See the module."""

    objects: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    """By kind and name."""
    claims: Sequence[Claim] = ()
    pods: Sequence[BrokerPod] = ()
    mutated: Mapping[ManifestId, str] = field(default_factory=dict)
    """What the API server keeps other than it was applied, and where it differs."""
    lowest_count: str | None = None
    """Below which nobody but the operator may take its pods (K1); None: nothing is said."""

    def has(self, wanted: Manifest) -> bool:
        """Or as near to it as the API server will have it: it is not applied again and again."""
        there = self.objects.get((wanted["kind"], wanted["metadata"]["name"]))
        return matches(there, wanted) or (there is not None and manifest_id(wanted) in self.mutated)

    def stateful_set(self, cluster: ClusterObject) -> Manifest | None:
        return self.objects.get(("StatefulSet", cluster.key.name))

    def formation(self, cluster: ClusterObject) -> Formation | None:
        """Raises `ValueError` if somebody else wrote it."""
        found = self.objects.get(("ConfigMap", formation_name(cluster)))
        return None if found is None else read_formation(found)

    def listener_services(self, cluster: ClusterObject) -> Mapping[str, Manifest]:
        """By name; those that the operator made for this very Cluster."""
        return {
            name: one
            for (kind, name), one in self.objects.items()
            if kind == "Service"
            and LISTENER_LABEL in (one["metadata"].get("labels") or {})
            and _controller(one) == cluster.uid
        }


def _controller(one: Manifest) -> str | None:
    """The uid of the object to which it belongs."""
    owners = one["metadata"].get("ownerReferences", ())
    return next((each["uid"] for each in owners if each.get("controller")), None)
