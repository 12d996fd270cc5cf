"""A rendered release: its objects, and those that the operator creates for its Cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support.kube.chart import Manifest, rendered
from support.kube.ingestions import ingestion_manifest
from tidelog_operator.ingestions import read_ingestion
from tidelog_operator.model import ClusterObject, read_cluster
from tidelog_operator.resources.runs import continuous_job
from tidelog_operator.resources.services import client_service, headless_service
from tidelog_operator.resources.stateful_set import Pods, stateful_set

Labels = Mapping[str, str]


BROKERS, OPERATOR, NATS, TEST, DEFINITIONS = "brokers", "operator", "nats", "test", "definitions"
DRIVER = "driver"


def driver() -> Manifest:
    """The template of a driver of an Ingestion, as the operator makes it."""
    one = read_ingestion(ingestion_manifest(continuous=True))
    assert one.spec is not None
    template: Manifest = continuous_job(one, one.spec, 1, 0)["spec"]["template"]
    return template


class Release:
    """The objects of a release, and those that the operator creates for its Cluster."""

    def __init__(self, programs: Path, values: Manifest) -> None:
        self.objects = rendered(programs, values)
        cluster = self.cluster()
        self.services = [*self.of("Service")]
        self.pods: dict[str, Manifest] = dict(self._templates())
        self.drivers = {DRIVER: driver()}
        if cluster is not None:
            self.services += [dict(client_service(cluster)), dict(headless_service(cluster))]
            self.pods[BROKERS] = stateful_set(cluster, Pods(3))["spec"]["template"]

    def of(self, kind: str) -> Sequence[Manifest]:
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind: str, end: str) -> Manifest:
        """Returns the object whose name ends with this."""
        (found,) = [one for one in self.of(kind) if one["metadata"]["name"].endswith(end)]
        return found

    def cluster(self) -> ClusterObject | None:
        for one in self.of("Cluster"):
            given = {"uid": "7c5b1a0e-0000-4000-8000-000000000000", "generation": 1, "resourceVersion": "1"}
            made = read_cluster({**one, "metadata": {**one["metadata"], **given}})
            assert isinstance(made, ClusterObject)
            return made
        return None

    def _templates(self) -> Iterator[tuple[str, Manifest]]:
        for one in self.objects:
            if one["kind"] in ("Deployment", "StatefulSet", "Job"):
                yield self._part(one), one["spec"]["template"]
            if one["kind"] == "Pod":
                yield self._part(one), one

    def _part(self, one: Manifest) -> str:
        name: str = one["metadata"]["labels"]["app.kubernetes.io/name"]
        return name.removeprefix("tidelog-")

    def selected(self, labels: Labels) -> set[str]:
        """Returns the parts of the release whose pods have these labels."""
        assert labels
        pods = {**self.pods, **self.drivers}
        return {part for part, pod in pods.items() if labels.items() <= pod["metadata"]["labels"].items()}

    def ports(self, part: str) -> dict[str, int]:
        (container,) = {**self.pods, **self.drivers}[part]["spec"]["containers"]
        return {one["name"]: one["containerPort"] for one in container.get("ports", ())}
