"""Faults of nodes, pods and volumes under load: the cluster recovers without help, and no record is lost."""

from __future__ import annotations

import time

import pytest

from e2e.cluster.cluster import Cluster
from e2e.conftest import Figures
from e2e.kube import wait_until
from e2e.load.base import Load
from e2e.release import CLUSTER, Release

WHOLE_SECONDS_MAX = 120.0
"""Seconds from the end of the fault, or from when Kubernetes has given a node up, until all replicas are in
sync."""

CUT_SECONDS = 40.0
"""Twice the time after which Kubernetes marks a node as lost."""

PAUSE_SECONDS_MAX = 10.0
"""The other brokers notice a failed broker after two seconds; nothing else may delay writes."""

OPERATOR = pytest.mark.parametrize("killed", [False, True], ids=["", "operator killed"])


def _whole_again(release: Release, figures: Figures, what: str, since: float, *, killed: bool) -> None:
    release.until_healthy(WHOLE_SECONDS_MAX)
    label = f"{what}{', operator killed' if killed else ''}"
    figures.note(f"{label}: whole again after, seconds", time.monotonic() - since)


def _paused(load: Load, figures: Figures, what: str, since: float, *, killed: bool) -> None:
    """Records the longest pause of acknowledgements, and checks it. `since`: wall clock. Every partition
    counts, pauses that have not ended included."""
    pause = load.pause_since(since)
    label = f"{what}{', operator killed' if killed else ''}"
    figures.note(f"{label}: longest pause of acknowledgements, seconds", pause)
    assert pause < PAUSE_SECONDS_MAX


@OPERATOR
def test_a_node_is_drained(killed: bool, healthy: Release, nodes: Cluster, figures: Figures) -> None:
    node = healthy.node_to_break()
    with healthy.load() as load:
        began, began_at = time.monotonic(), time.time()
        if killed:
            healthy.kill_operator()
        healthy.kube.kubectl(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s", seconds=200
        )
        figures.note(f"drain{', operator killed' if killed else ''}: seconds", time.monotonic() - began)
        assert all(one["spec"].get("nodeName") != node for one in healthy.pods().values())
        healthy.kube.kubectl("uncordon", node)
        _whole_again(healthy, figures, "drain", began, killed=killed)
        _paused(load, figures, "drain", began_at, killed=killed)


@OPERATOR
def test_a_pod_is_deleted_by_force(killed: bool, healthy: Release, figures: Figures) -> None:
    with healthy.load() as load:
        began, began_at = time.monotonic(), time.time()
        healthy.kube.kubectl("delete", "pod", f"{CLUSTER}-1", "--force", "--grace-period=0", "--wait=false")
        if killed:
            healthy.kill_operator()
        wait_until(lambda: "" if healthy.lacks() else "it is not gone yet", 30)
        _whole_again(healthy, figures, "pod deleted by force", began, killed=killed)
        _paused(load, figures, "pod deleted by force", began_at, killed=killed)


@OPERATOR
def test_a_pod_and_its_volume_are_deleted(killed: bool, healthy: Release, figures: Figures) -> None:
    claim = healthy.kube.get("pvc", f"data-{CLUSTER}-2")
    assert claim is not None
    with healthy.load() as load:
        began, began_at = time.monotonic(), time.time()
        healthy.kube.kubectl("delete", "pvc", f"data-{CLUSTER}-2", "--wait=false")
        healthy.kube.kubectl("delete", "pod", f"{CLUSTER}-2", "--wait=false")
        if killed:
            healthy.kill_operator()

        def lack() -> str:
            now = healthy.kube.get("pvc", f"data-{CLUSTER}-2")
            same = now is not None and now["metadata"]["uid"] == claim["metadata"]["uid"]
            return "the claim is still there" if same else ""

        wait_until(lack, 120)
        _whole_again(healthy, figures, "pod and volume deleted", began, killed=killed)
        _paused(load, figures, "pod and volume deleted", began_at, killed=killed)


@OPERATOR
def test_a_node_is_cut_off_and_healed(
    killed: bool, healthy: Release, nodes: Cluster, figures: Figures
) -> None:
    node = nodes.named(healthy.node_to_break())
    with healthy.load() as load:
        began_at = time.time()
        node.cut_off()
        if killed:
            healthy.kill_operator()
        try:
            load.flows()
            wait_until(lambda: "" if healthy.lacks() else "nobody noticed", 60)
            # The duration of the partition.
            time.sleep(CUT_SECONDS)
            load.flows()
        finally:
            node.cut_off(ends=True)
        _whole_again(healthy, figures, "partition, from the healing", time.monotonic(), killed=killed)
        _paused(load, figures, "partition", began_at, killed=killed)


# The volumes of this cluster are bound to no node, like network disks. A lost volume has a test above.
@OPERATOR
def test_a_node_is_lost_and_its_brokers_move_with_their_volumes(
    killed: bool, healthy: Release, nodes: Cluster, figures: Figures
) -> None:
    node = nodes.named(healthy.node_to_break())
    with healthy.load() as load:
        began_at = time.time()
        node.stop()
        if killed:
            healthy.kill_operator()
        try:
            load.flows()
            wait_until(lambda: "" if healthy.lacks() else "nobody noticed", 60)
            began = time.monotonic()
            healthy.kube.kubectl("delete", "node", node.name)
            wait_until(lambda: healthy.lacks_away_from(node.name), WHOLE_SECONDS_MAX)
            _whole_again(healthy, figures, "node lost, from its deletion", began, killed=killed)
            _paused(load, figures, "node lost", began_at, killed=killed)
        finally:
            # A new machine of that name.
            node.erase()
            node.start()
            node.wait_until_ready()
