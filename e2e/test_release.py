"""The chart itself: from its last version to this one, and away again, with everything that was recorded."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from e2e.conftest import Figures
from e2e.kube import Kube, wait_until
from e2e.release import CHART, CLUSTER, NAME, Release, earlier_chart, stream

WRITTEN = ["one", "two", "three"]


def _read(release: Release) -> list[str]:
    return release.kube.exec(f"{CLUSTER}-0", "tidelog", "consume", "kept").split()


def _write(release: Release) -> None:
    release.kube.apply(stream("kept", replicationFactor=3))
    release.until_healthy()
    if not _read(release):
        release.kube.exec(f"{CLUSTER}-0", "tidelog", "produce", "kept", *WRITTEN)
    assert _read(release) == WRITTEN


def test_an_upgrade_from_the_chart_before_this_one(healthy: Release, kube: Kube, figures: Figures) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = earlier_chart(Path(folder))
        if before is None:
            pytest.skip("there is no earlier chart")
        _write(healthy)
        healthy.upgrade(before)
        healthy.until_healthy()
        with healthy.load():
            began = time.monotonic()
            healthy.upgrade(CHART)
            healthy.until_healthy()
            figures.note("upgrade from the chart before this one, seconds", time.monotonic() - began)
    assert _read(healthy) == WRITTEN


def test_what_is_uninstalled_and_installed_again_has_all_records(
    healthy: Release, kube: Kube, figures: Figures
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
    healthy.until_healthy()
    figures.note("helm install on the volumes of before, seconds", time.monotonic() - began)
    assert _read(healthy) == WRITTEN
