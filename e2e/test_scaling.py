"""More brokers and fewer of them, by `helm upgrade`, under load."""

from __future__ import annotations

import time

import pytest

from e2e.conftest import Figures
from e2e.release import Release


@pytest.mark.parametrize("killed", [False, True], ids=["", "operator killed"])
def test_three_five_three(killed: bool, healthy: Release, figures: Figures) -> None:
    with healthy.load():
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
