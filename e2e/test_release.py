"""The chart itself: from its last version to this one, and away again, with everything that was recorded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from e2e import earlier
from e2e.conftest import Figures
from e2e.kube import Kube, wait_until
from e2e.release import BEFORE, BROKERS, CHART, CLUSTER, NAME, OPERATORS, TAG, Release, stream

WRITTEN = ["one", "two", "three"]
DEFINITIONS = ("clusters.tidelog.io", "streams.tidelog.io")


def _read(release: Release) -> list[str]:
    return release.kube.exec(f"{CLUSTER}-0", "tidelog", "consume", "kept").split()


def _write(release: Release) -> None:
    release.kube.apply(stream("kept", replicationFactor=3))
    release.until_healthy()
    if not _read(release):
        release.kube.exec(f"{CLUSTER}-0", "tidelog", "produce", "kept", *WRITTEN)
    assert _read(release) == WRITTEN


def _revisions(kube: Kube) -> dict[str, str]:
    """Of the definitions that the API server has."""
    return {
        name: (kube.get("crd", name) or {"metadata": {}})["metadata"]["annotations"]["tidelog.io/revision"]
        for name in DEFINITIONS
    }


def _images(kube: Kube, labels: str) -> set[str]:
    """Of the pods that run."""
    return {
        one["spec"]["containers"][0]["image"].rpartition(":")[2]
        for one in kube.list("pods", labels)
        if "deletionTimestamp" not in one["metadata"]
    }


def test_an_upgrade_from_the_chart_before_this_one(
    healthy: Release, kube: Kube, figures: Figures, tmp_path: Path
) -> None:
    """Chart, definitions, images and volumes of the commit before, as whoever installed it then has them."""
    try:
        earlier.write(tmp_path)
    except earlier.NoEarlierChart as error:
        pytest.skip(f"there is no earlier chart: {error}")
    everywhere = ("get", "clusters.tidelog.io", "--all-namespaces", "--output")
    namespaces = set(kube.kubectl(*everywhere, "jsonpath={.items[*].metadata.namespace}").split())
    if namespaces != {kube.namespace}:
        pytest.skip(f"there are Clusters, whose definitions are not to change, in {sorted(namespaces)}")
    before = tmp_path / earlier.CHART
    now = _revisions(kube)
    healthy.uninstall()
    kube.kubectl("replace", "--filename", str(before / "crds"))
    healthy.with_images(BEFORE)
    healthy.install(before)
    healthy.until_healthy()
    _write(healthy)

    healthy.with_images(TAG)
    with healthy.load():
        began = time.monotonic()
        healthy.upgrade(CHART)
        healthy.until_healthy()
        figures.note("upgrade from the chart before this one, seconds", time.monotonic() - began)

    assert _revisions(kube) == now
    assert (_images(kube, BROKERS), _images(kube, OPERATORS)) == ({TAG}, {TAG})
    assert _read(healthy) == WRITTEN


@pytest.mark.parametrize("killed", [False, True], ids=["", "operator killed"])
def test_what_is_uninstalled_and_installed_again_has_all_records(
    killed: bool, healthy: Release, kube: Kube, figures: Figures
) -> None:
    _write(healthy)
    claims = {one["metadata"]["name"]: one["metadata"]["uid"] for one in kube.list("pvc")}

    said = kube.helm("uninstall", NAME, "--wait")

    def lack() -> str:
        return "brokers are still there" if healthy.pods() else ""

    wait_until(lack, 240)
    assert claims == {one["metadata"]["name"]: one["metadata"]["uid"] for one in kube.list("pvc")}
    assert kube.get("streams.tidelog.io", "kept") is not None
    assert said

    began = time.monotonic()
    healthy.install()
    # A Stream that nobody has seen yet, too.
    kube.apply(stream(f"new-{'killed' if killed else 'calm'}", replicationFactor=3))
    if killed:
        healthy.kill_operator()
    healthy.until_healthy()
    label = f"helm install on the volumes of before{', operator killed' if killed else ''}, seconds"
    figures.note(label, time.monotonic() - began)
    assert _read(healthy) == WRITTEN
