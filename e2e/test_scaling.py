"""Adds and removes brokers with `helm upgrade`, under load."""

from __future__ import annotations

import time

import pytest

from e2e.conftest import Figures
from e2e.release import Release

PAUSE_SECONDS_MAX = 5.0


@pytest.mark.parametrize("killed", [False, True], ids=["", "operator killed"])
def test_scaling_from_three_to_five_to_three_brokers(
    killed: bool, healthy: Release, figures: Figures
) -> None:
    with healthy.load() as load:
        began_at = time.time()
        for count in (5, 3):
            began = time.monotonic()
            healthy.upgrade(brokers=count)
            if killed:
                healthy.kill_operator()
            healthy.until_healthy()
            label = f"scaling to {count}{', operator killed' if killed else ''}: seconds"
            figures.note(label, time.monotonic() - began)
            assert len(healthy.pods()) == count
            claims = [one["metadata"]["name"] for one in healthy.kube.list("pvc")]
            assert len(claims) == count, claims
        pause = load.pause_since(began_at)
    figures.note(
        f"scaling{', operator killed' if killed else ''}: longest pause of acknowledgements, seconds", pause
    )
    assert pause < PAUSE_SECONDS_MAX
