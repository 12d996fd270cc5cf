"""The chart: an upgrade from its previous version to this one, and an uninstall, with all recorded data."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from e2e import earlier
from e2e.conftest import Figures
from e2e.kube import Kube, wait_until
from e2e.release import BEFORE, BROKERS, CHART, CLUSTER, NAME, OPERATORS, TAG, Release, stream

WRITTEN = ["one", "two", "three"]
REVISION = "tidelog.io/revision"


def _read(release: Release) -> list[str]:
    return release.kube.exec(f"{CLUSTER}-0", "tidelog", "consume", "kept").split()


def _write(release: Release) -> None:
    release.kube.apply(stream("kept", replicationFactor=3))
    release.until_healthy()
    if not _read(release):
        release.kube.exec(f"{CLUSTER}-0", "tidelog", "produce", "kept", *WRITTEN)
    assert _read(release) == WRITTEN


def _expected(chart: Path) -> dict[str, str]:
    """Returns the revisions of a chart's definitions, by name."""
    found = [yaml.safe_load(file.read_text()) for file in (chart / "crds").glob("*.yaml")]
    return {one["metadata"]["name"]: one["metadata"]["annotations"][REVISION] for one in found}


def _known(kube: Kube) -> dict[str, str]:
    """Returns the definitions of the API server."""
    found = {name: kube.get("crd", name) for name in _expected(CHART)}
    return {name: one["metadata"]["annotations"][REVISION] for name, one in found.items() if one}


def _lacks_images(kube: Kube, tag: str) -> str:
    """Returns which brokers and operators do not have this image; empty: none."""
    pods = [*kube.list("pods", BROKERS), *kube.list("pods", OPERATORS)]
    others = [
        one["metadata"]["name"]
        for one in pods
        if one["spec"]["containers"][0]["image"].rpartition(":")[2] != tag
    ]
    return f"{', '.join(others)} are of another image than {tag}" if others else ""


def test_an_upgrade_from_the_chart_before_this_one(healthy: Release, kube: Kube, figures: Figures) -> None:
    """Installs chart, definitions and images of the earlier commit, as its users have them."""
    before = earlier.FOLDER / earlier.CHART
    if not before.exists():
        pytest.skip("`make cluster` has built no images of an earlier commit (CONTRIBUTING.md)")
    everywhere = ("get", "clusters.tidelog.io", "--all-namespaces", "--output")
    namespaces = set(kube.kubectl(*everywhere, "jsonpath={.items[*].metadata.namespace}").split())
    if namespaces != {kube.namespace}:
        pytest.skip(f"there are Clusters, whose definitions are not to change, in {sorted(namespaces)}")
    healthy.uninstall()
    kube.kubectl("replace", "--filename", str(before / "crds"))
    healthy.with_images(BEFORE)
    try:
        healthy.install(before)
        healthy.until_healthy()
        _write(healthy)
        assert _known(kube) == _expected(before)
        healthy.with_images(TAG)
        with healthy.load():
            began = time.monotonic()
            healthy.upgrade()
            healthy.until_healthy()
            figures.note("upgrade from the chart before this one, seconds", time.monotonic() - began)
    except BaseException:
        # Other tests need this chart.
        healthy.with_images(TAG)
        healthy.upgrade()
        raise

    wait_until(lambda: _lacks_images(kube, TAG), 60)
    assert _known(kube) == _expected(CHART)
    assert _read(healthy) == WRITTEN


@pytest.mark.parametrize("killed", [False, True], ids=["", "operator killed"])
def test_a_reinstalled_release_has_all_records(
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
    # Also for a new Stream.
    kube.apply(stream(f"new-{'killed' if killed else 'calm'}", replicationFactor=3))
    if killed:
        healthy.kill_operator()
    healthy.until_healthy()
    label = f"helm install on the volumes of before{', operator killed' if killed else ''}, seconds"
    figures.note(label, time.monotonic() - began)
    assert _read(healthy) == WRITTEN
