"""A continuous Ingestion under load, with brokers replaced meanwhile.

TIDELOG_E2E_CONTINUOUS_MINUTES says how long it runs; `make e2e` needs two minutes, and a release needs 20.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from e2e.conftest import Figures
from e2e.ingestion import (
    STREAM,
    Sales,
    ingestion,
    position,
    reason,
    sentence,
    status,
    until,
    until_reason,
    until_written,
)
from e2e.kube import Kube
from e2e.lake import Lake
from e2e.release import CLUSTER, Release

pytestmark = pytest.mark.usefixtures("healthy")

MINUTES = float(os.environ.get("TIDELOG_E2E_CONTINUOUS_MINUTES", "2"))
RECORDS = 50
"""Records of each step of the load; a step takes a second or two."""
OFFSETS_PER_BATCH = "2000"
INTERVAL = "5s"
SHOWN_MAX = 40
"""Points of the curve of the lag in the figures."""


class Curve:
    """The lag by time, as the status and the count of records say: records that are not written yet."""

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []
        self._began = time.monotonic()

    def __repr__(self) -> str:
        return f"<Curve {len(self.points)}>"

    def note(self, found: dict[str, Any], count: int) -> None:
        self.points.append((round(time.monotonic() - self._began), count - position(found)))

    def shown(self) -> str:
        step = max(1, len(self.points) // SHOWN_MAX)
        return " ".join(f"{at}s:{lag}" for at, lag in self.points[::step])


@pytest.mark.timeout(MINUTES * 60 + 1800)
def test_it_follows_the_stream_while_brokers_are_replaced(
    name: str, kube: Kube, lake: Lake, sales: Sales, release: Release, figures: Figures
) -> None:
    source = {"streams": [STREAM], "options": {"maxOffsetsPerTrigger": OFFSETS_PER_BATCH}}
    began = time.monotonic()
    kube.apply(ingestion(name, continuous=True, trigger={"interval": INTERVAL}, source=source))
    found = until_reason(kube, name, "Running")
    until_written(kube, name, sales.count)
    figures.note("continuous: kubectl apply to lag 0, seconds", time.monotonic() - began)
    driver, curve = found["lastRun"]["name"], Curve()

    load(kube, sales, name, curve, MINUTES * 60 / 2)
    before = {pod: one["metadata"]["uid"] for pod, one in release.pods().items()}
    kube.kubectl("rollout", "restart", f"statefulset/{CLUSTER}")
    rolled = time.monotonic()
    while not replaced(release, before):
        load(kube, sales, name, curve, 0)
        assert time.monotonic() < rolled + 300, release.lacks()
    release.until_rolled(before)
    figures.note("continuous: all brokers replaced after, seconds", time.monotonic() - rolled)
    at = sales.count
    until(kube, name, lambda found: position(found) >= at, f"has written {at} records", 300)
    figures.note("continuous: all records of that time written after, seconds", time.monotonic() - rolled)
    load(kube, sales, name, curve, MINUTES * 60 / 2)

    found = until_written(kube, name, sales.count)
    curve.note(found, sales.count)
    figures.note("continuous: records not written, by time", curve.shown())
    figures.note("continuous: the status", sentence(found))
    figures.note("continuous: records", sales.count)
    assert reason(found) == "Running"
    assert (found["lastRun"]["name"], found["attempts"]) == (driver, 1)
    sales.check_files(name)

    kube.apply(ingestion(name, continuous=True, suspend=True, source=source))
    stopped = until_reason(kube, name, "Suspended")
    figures.note("continuous, suspended", sentence(stopped))
    until(kube, name, lambda found: "active" not in found, "is stopped", 180)
    sales.append(RECORDS)
    kube.apply(ingestion(name, continuous=True, trigger={"interval": INTERVAL}, source=source))
    until_written(kube, name, sales.count)
    # Runs are counted from one again, since the stopped one does not exist any more.
    assert status(kube, name)["lastRun"]["startedAt"] > found["lastRun"]["startedAt"]
    sales.check_files(name)


def load(kube: Kube, sales: Sales, name: str, curve: Curve, seconds: float) -> None:
    """Appends records for some time, at least once."""
    ends = time.monotonic() + seconds
    while True:
        sales.append(RECORDS)
        curve.note(status(kube, name), sales.count)
        if time.monotonic() >= ends:
            return


def replaced(release: Release, before: dict[str, str]) -> bool:
    now = {pod: one["metadata"]["uid"] for pod, one in release.pods().items()}
    return not any(now.get(pod) == uid for pod, uid in before.items())
