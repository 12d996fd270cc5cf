"""Brokers are replaced one after the other under load: clients notice nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from e2e.conftest import Figures
from e2e.release import CLUSTER, NEXT, REGISTRY, TAG, Release

Change = dict[str, Any]

PAUSE_SECONDS_MAX = 5.0
"""Brokers hand over leaderships before they stop; clients find the new leaders and addresses this fast."""

IMAGE: Change = {"image": {"repository": f"{REGISTRY}/broker", "tag": NEXT}}
IMAGE_BEFORE: Change = {"image": {"repository": f"{REGISTRY}/broker", "tag": TAG}}
SETTINGS: Change = {"settings": {"produceTimeout": "29s"}}


@pytest.mark.parametrize("killed", [False, True], ids=["", "operator killed"])
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("image", IMAGE),
        ("configuration", SETTINGS),
        pytest.param("rollout restart", None, marks=pytest.mark.short),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rollout_under_load_loses_no_records(
    what: str, change: Change | None, killed: bool, healthy: Release, figures: Figures
) -> None:
    if change is not None:
        # Switches between two values: whatever the release has, this changes it.
        current = healthy.values["cluster"]
        if all(current.get(key) == value for key, value in change.items()):
            change = {"settings": {}} if what == "configuration" else IMAGE_BEFORE
    before = {name: one["metadata"]["uid"] for name, one in healthy.pods().items()}
    with healthy.load() as load:
        began, began_at = time.monotonic(), time.time()
        if change is None:
            healthy.kube.kubectl("rollout", "restart", f"statefulset/{CLUSTER}")
        else:
            healthy.upgrade(**change)
        if killed:
            healthy.kill_operator()
        healthy.until_rolled(before)
        seconds = time.monotonic() - began
        healthy.until_balanced()
        pause = load.pause_since(began_at)
    label = f"rolling, {what}{', operator killed' if killed else ''}"
    figures.note(f"{label}: seconds per broker", seconds / healthy.brokers)
    figures.note(f"{label}: longest pause of acknowledgements, seconds", pause)
    assert pause < PAUSE_SECONDS_MAX
