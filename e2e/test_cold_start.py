"""All nodes lose their power at the same moment, and come back."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from e2e.cluster.cluster import Cluster
from e2e.conftest import Figures
from e2e.kube import wait_until
from e2e.release import Release

WHOLE_SECONDS_MAX = 180.0


@pytest.mark.parametrize("killed", [False, True], ids=["", "operator killed"])
def test_all_nodes_lose_power_at_once(
    killed: bool, healthy: Release, nodes: Cluster, figures: Figures
) -> None:
    """Clients run outside, reach brokers by the addresses of nodes, and survive the power loss."""
    with healthy.load_from_outside(nodes):
        running = nodes.nodes
        for node in running:
            node.stop()
        # Times of Kubernetes have whole seconds.
        dark = datetime.now(UTC).replace(microsecond=0)
        for node in running:
            node.start()
        began = time.monotonic()
        for node in running:
            node.wait_until_ready()
        if killed:
            healthy.kill_operator()
        wait_until(lambda: healthy.lacks_since(dark), WHOLE_SECONDS_MAX)
        label = f"cold start{', operator killed' if killed else ''}: whole again after, seconds"
        figures.note(label, time.monotonic() - began)
