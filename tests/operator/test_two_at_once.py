"""Two operators that both act as the leader, suspended by turns: the result is the same as with one.

The Lease prevents this for longer than a request takes; the versions, ids and epochs in actions prevent harm.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.kube.control_plane import ControlPlane
from support.kube.nodes import Nodes
from support.kube.operator_process import StubbornOperator
from support.kube.situation import ClusterOnNodes
from support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

HELD_SECONDS = (0.05, 1.5)


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(programs, tmp_path_factory.mktemp("plane"), controllers=True) as made:
        made.add_crds()
        yield made


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(plane, tmp_path_factory.mktemp("nodes") / "nodes") as made:
        yield made


@contextmanager
def held_by_turns(operators: tuple[StubbornOperator, ...], seed: int) -> Iterator[None]:
    """Suspends one of them at a time, for a while, at any point."""
    ends, dice = threading.Event(), random.Random(seed)

    def hold() -> None:
        while not ends.is_set():
            for one in operators:
                one.hold()
                ends.wait(dice.uniform(*HELD_SECONDS))
                one.resume()

    thread = threading.Thread(target=hold, name="holds operators up")
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_two_active_operators_reach_the_same_state_as_one(
    plane: ControlPlane, nodes: Nodes, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    one, other = (StubbornOperator(folder, plane.kubeconfig) for folder in folders)
    cluster = ClusterOnNodes(plane, nodes, "main")
    wider: dict[str, Any] = {"partitions": 6, "replicationFactor": 3}

    with one, other, held_by_turns((one, other), seed=5):
        cluster.apply(brokers=3)
        cluster.until_ready(3)
        cluster.apply_stream("orders", partitions=4, replicationFactor=2)
        with cluster.connected() as brokers:
            stream_id = brokers.describe_stream("orders").stream_id
        with cluster.load("orders") as load:
            cluster.apply(brokers=5)
            cluster.until_ready(5)
            cluster.apply_stream("orders", **wider, retention={"messages": 10**6})
            wait_until(lambda: cluster.copies("orders") == [3] * 6, "there are more replicas")
            # The spec changes while brokers are drained.
            for wanted in (3, 5, 4, 3):
                cluster.apply(brokers=wanted)
                load.until_more(200)
            cluster.until_ready(3)
            cluster.apply(brokers=5)
            cluster.until_ready(5)
            load.until_more(10)
        assert load.errors == []
        assert load.acknowledged <= cluster.records("orders")
        with cluster.connected() as brokers:
            assert brokers.describe_stream("orders").stream_id == stream_id
            assert not any(found.cordoned for found in brokers.describe_cluster().standings)
        cluster.delete_stream("orders")
        cluster.apply_stream("orders", **wider, deletionPolicy="Delete")
        with cluster.connected() as brokers:
            assert brokers.describe_stream("orders").stream_id == stream_id
        cluster.delete_stream("orders")

    for operator in (one, other):
        assert "Traceback" not in operator.log_path.read_text("utf-8", "replace")
