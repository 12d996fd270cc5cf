"""The Kubernetes objects of a Cluster, as plans see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog_operator.model import BrokerPod, Claim, ClusterObject, Manifest
from tidelog_operator.resources.comparing import matches
from tidelog_operator.resources.formation import Formation, read_formation
from tidelog_operator.resources.naming import LISTENER_LABEL, ManifestId, formation_name, manifest_id


@dataclass(frozen=True, slots=True)
class Owned:
    """The observed objects of one Cluster."""

    objects: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    """By kind and name."""
    claims: Sequence[Claim] = ()
    pods: Sequence[BrokerPod] = ()
    mutated: Mapping[ManifestId, str] = field(default_factory=dict)
    """Applied manifests that an admission webhook or the API server changed, with the path of the first
    difference."""
    lowest_count: str | None = None
    """The lowest number of pods that the admission policy allows (K1); None: no number is recorded."""

    def has(self, wanted: Manifest) -> bool:
        """Whether the object exists as wanted, or as close to it as the API server accepts; so that it is not
        applied again and again."""
        there = self.objects.get((wanted["kind"], wanted["metadata"]["name"]))
        return matches(there, wanted) or (there is not None and manifest_id(wanted) in self.mutated)

    def stateful_set(self, cluster: ClusterObject) -> Manifest | None:
        return self.objects.get(("StatefulSet", cluster.key.name))

    def formation(self, cluster: ClusterObject) -> Formation | None:
        """Returns the formation marker. Raises `ValueError` if another client wrote something else into
        it."""
        found = self.objects.get(("ConfigMap", formation_name(cluster)))
        return None if found is None else read_formation(found)

    def listener_services(self, cluster: ClusterObject) -> Mapping[str, Manifest]:
        """Returns the listener services that the operator created for this Cluster, by name."""
        return {
            name: one
            for (kind, name), one in self.objects.items()
            if kind == "Service"
            and LISTENER_LABEL in (one["metadata"].get("labels") or {})
            and _controller(one) == cluster.uid
        }


def _controller(one: Manifest) -> str | None:
    """Returns the uid of the controlling owner."""
    owners = one["metadata"].get("ownerReferences", ())
    return next((each["uid"] for each in owners if each.get("controller")), None)
