"""The operator is killed after every single action: a Cluster and a Stream still reach their desired state.

Each process executes one action and is killed before it sees the result, so each step of a story is followed
by a new operator that finds what the previous one left. The result is the same as without a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.kube.control_plane import ControlPlane
from support.kube.nodes import Nodes
from support.kube.operator_process import DyingOperator, OperatorProcess
from support.kube.situation import ClusterOnNodes
from support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LIVES_MAX = 60


class Story:
    """A Cluster whose operators execute one action each."""

    def __init__(self, cluster: ClusterOnNodes, operator: DyingOperator) -> None:
        self.cluster = cluster
        self._operator = operator

    def goes_on(self, until: Callable[[], bool]) -> list[str]:
        """Starts and kills operators until there is nothing more to do; returns the actions after which they
        were killed."""
        operator, before = self._operator, len(self._operator.last_actions())
        for _ in range(LIVES_MAX):
            with operator:
                try:
                    wait_until(
                        lambda: not operator.running or until(), "it has acted, or has nothing to do", 60
                    )
                except AssertionError as error:
                    said = self.cluster.status().get("conditions")
                    raise AssertionError(f"after {operator.last_actions()[before:]}: {said}") from error
                lives = operator.running
            if lives:
                return operator.last_actions()[before:]
        raise AssertionError(f"it goes on for ever: {operator.last_actions()[before:]}")


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(programs, tmp_path_factory.mktemp("plane"), controllers=True) as made:
        made.add_crds()
        yield made


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(plane, tmp_path_factory.mktemp("nodes") / "nodes") as made:
        yield made


def test_an_operator_killed_after_each_action_continues(
    plane: ControlPlane, nodes: Nodes, tmp_path: Path
) -> None:
    cluster = ClusterOnNodes(plane, nodes, "main")
    story = Story(cluster, DyingOperator(tmp_path, plane.kubeconfig))

    # Creation.
    cluster.apply(brokers=3)
    died = story.goes_on(lambda: cluster.is_settled(3))
    assert {"CreateObject", "ApplyObject", "SetLowestCount"} <= set(died)
    cluster.apply_stream("orders", wait=False, partitions=2, replicationFactor=1)
    died = story.goes_on(lambda: cluster.stream_is_ready("orders"))
    assert died == ["CreateStream"]
    with cluster.connected() as brokers:
        stream_id = brokers.describe_stream("orders").stream_id
        with brokers.producer("orders") as producer:
            for number in range(100):
                producer.send(str(number).encode(), key=str(number).encode())
    written = cluster.records("orders")

    # Changes.
    more = {"partitions": 4, "replicationFactor": 3}
    cluster.apply_stream("orders", wait=False, **more, retention={"messages": 1000})
    died = story.goes_on(lambda: cluster.stream_is_ready("orders") and cluster.copies("orders") == [3] * 4)
    assert {"AlterStream", "Reassign"} <= set(died)

    # More brokers, then fewer.
    cluster.apply(brokers=5)
    died = story.goes_on(lambda: cluster.is_settled(5) and {3, 4} <= cluster.holders("orders"))
    assert {"SetLowestCount", "ApplyObject", "Reassign"} <= set(died)
    cluster.apply(brokers=3)
    claims = ["data-main-0", "data-main-1", "data-main-2"]
    died = story.goes_on(lambda: cluster.is_settled(3) and sorted(cluster.claims()) == claims)
    assert {"CordonBroker", "Reassign", "UnregisterBroker", "ApplyObject", "SetLowestCount"} <= set(died)
    assert died.count("DeleteObject") == 2
    assert cluster.holders("orders") == {0, 1, 2}

    # A lost volume.
    before = cluster.claim_uids()
    nodes.lose_volume("data-main-1")
    died = story.goes_on(lambda: cluster.claim_uids() != before and cluster.is_settled(3))
    assert died[:2] == ["DeleteObject", "DeleteObject"]
    wait_until(lambda: cluster.in_sync("orders"), "all replicas are in sync again")

    # The Stream is deleted and created again.
    cluster.delete_stream("orders")
    died = story.goes_on(lambda: cluster.owner("orders") == "retained:default/orders")
    assert died == ["RetainStream"]
    cluster.apply_stream("orders", wait=False, **more, deletionPolicy="Delete")
    died = story.goes_on(lambda: cluster.stream_is_ready("orders"))
    assert died[:2] == ["AddFinalizer", "AlterStream"]
    cluster.apply_stream("orders", wait=False, **more)
    died = story.goes_on(lambda: not cluster.is_held("orders"))
    assert died == ["RemoveFinalizer"]
    cluster.apply_stream("orders", wait=False, **more, deletionPolicy="Delete")
    died = story.goes_on(lambda: cluster.is_held("orders"))
    assert died == ["AddFinalizer"]
    with cluster.connected() as brokers:
        found = brokers.describe_stream("orders")
    assert found.stream_id == stream_id
    assert all(len(one.replicas) == 3 and not one.lagging for one in found.partitions)
    assert cluster.records("orders") == written
    cluster.delete_stream("orders", wait=False)
    died = story.goes_on(lambda: not cluster.has_stream("orders"))
    assert died[:1] == ["DeleteStream"]

    # An operator that is not killed reports the final status.
    with OperatorProcess(tmp_path, plane.kubeconfig):
        wait_until(lambda: cluster.status()["streams"] == 0, "the status is correct")
        cluster.until_ready(3)
