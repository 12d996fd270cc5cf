"""What the tests on a cluster share: one release, and a table of measured values."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.cluster.__main__ import open_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.processes import ClusterError
from e2e.ingestion import STREAM, Sales
from e2e.kube import Kube
from e2e.lake import Lake
from e2e.release import CHART, CLUSTER, NAME, Release, stream

NAMESPACE: Final = os.environ.get("TIDELOG_E2E_NAMESPACE", "tidelog-e2e")
FIGURES: Final = Path(__file__).parents[1] / ".build" / "e2e" / "figures.json"

NAME_CHARACTERS_MAX: Final = 30
"""Characters of the name of an Ingestion; names of its pods are longer."""


class Figures:
    """Measured values, by topic."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<Figures {len(self.values)}>"

    def note(self, what: str, value: object) -> None:
        self.values[what] = round(value, 1) if isinstance(value, float) else value
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(self.values, indent=2) + "\n")


_FIGURES = Figures()


@pytest.fixture(scope="session")
def figures() -> Figures:
    return _FIGURES


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for what, value in _FIGURES.values.items():
        terminalreporter.write_line(f"{what}: {value}")


@pytest.fixture(scope="session")
def machines() -> Cluster | None:
    """The cluster of this machine, if it is tested; None: KUBECONFIG names another one."""
    if "KUBECONFIG" in os.environ:
        return None
    try:
        return open_cluster()
    except ClusterError as error:
        pytest.exit(f"No cluster to test: {error} Run `make cluster`, or set KUBECONFIG.", 2)


@pytest.fixture(scope="session")
def kube(machines: Cluster | None) -> Kube:
    return Kube(NAMESPACE, [] if machines is None else machines.plane.command())


@pytest.fixture(scope="session")
def release(kube: Kube, machines: Cluster | None, figures: Figures) -> Iterator[Release]:
    """The release: the first test that needs it installs it, and it is removed at the end."""
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": NAMESPACE,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            },
        }
    )
    made = Release(kube, load_node="" if machines is None else machines.nodes[0].name)
    if NAME in kube.helm("list", "--short").split():
        # Kept from an earlier run.
        made.upgrade()
    else:
        if kube.get("crd", "clusters.tidelog.io"):
            # Left by an earlier release, perhaps of another version: an installation does not change them.
            kube.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(CHART / "crds"))
        began = time.monotonic()
        made.install()
        made.until_healthy()
        figures.note("helm install to all brokers ready, seconds", time.monotonic() - began)
    yield made
    if os.environ.get("TIDELOG_E2E_KEEP"):
        return
    made.uninstall()
    kube.kubectl("delete", "namespace", NAMESPACE, seconds=300)


@pytest.fixture
def healthy(release: Release) -> Release:
    """The release, healthy again after earlier tests."""
    release.until_healthy()
    assert release.cluster()["metadata"]["name"] == CLUSTER
    return release


@pytest.fixture
def nodes(machines: Cluster | None) -> Cluster:
    if machines is None:
        pytest.skip("only this machine's own cluster has nodes that one may break")
    return machines


# --- Ingestions


@pytest.fixture(scope="module")
def lake(release: Release) -> Iterator[Lake]:
    """A volume, an object store, and the stream `sales`."""
    release.until_healthy()
    release.kube.apply(stream(STREAM, subject=f"{STREAM}.>", partitions=3, deletionPolicy="Delete"))
    release.until_healthy()
    made = Lake(release.kube, node=release.load_node)
    yield made
    made.close()
    release.kube.kubectl("delete", "stream.tidelog.io", STREAM, seconds=120)


@pytest.fixture(scope="module")
def sales(lake: Lake) -> Sales:
    made = Sales(lake)
    made.publish(1000)
    return made


@pytest.fixture
def name(request: pytest.FixtureRequest, kube: Kube) -> Iterator[str]:
    """The name of an Ingestion, which is deleted with its runs."""
    title = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    name = title[-NAME_CHARACTERS_MAX:].strip("-")
    yield name
    kube.kubectl("delete", "ingestion", name, "--ignore-not-found", "--cascade=foreground", seconds=180)
