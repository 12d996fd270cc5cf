"""A replica in which a bug showed is let go of: another one leads, and a restart brings it back (R6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replicas.conftest import STREAM, Cluster, Node, appended
from support.waiting import until
from tidelog.errors import InternalError, NotLeader
from tidelog_broker.hosting.replica_host import BrokerPartitionHost
from tidelog_broker.writing.append_requests import Acks


def folders(node: Node) -> list[str]:
    return sorted(path.name for path in Path(node.folder).glob("streams/*/*"))


def plant(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    """The next write to the node's log fails once it is done, for a reason that nobody foresaw."""
    log = node.partition().log.writer
    original = type(log)._wrote

    def broken(self: Any, *given: Any) -> None:
        original(self, *given)
        if self is log:
            raise KeyError("a planted bug")

    monkeypatch.setattr(type(log), "_wrote", broken)


async def test_a_leader_with_a_bug_is_told_of_and_follows_after_a_restart(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"before"))
    with monkeypatch.context() as patch:
        plant(patch, cluster[1])
        failed = await cluster[1].append(b"fails")
        assert isinstance(failed, InternalError)
    await until(lambda: cluster[1].lost, "the controller is told")
    assert cluster[1].lost[0][:2] == (STREAM, 0)
    assert not cluster[1].broker.failed.done()
    assert folders(cluster[1]) == ["0"], "it is not set aside: nothing says that it is bad"

    cluster.controller.change(leader=2, isr=(2, 3))
    await until(lambda: cluster[2].partition().leads, "another leader")
    await appended(cluster[2].append(b"after"))
    with pytest.raises(NotLeader) as refused:
        cluster[1].append(b"x")
    assert refused.value.details["leader"] == "2"
    await cluster[1].broker.applied(cluster.controller.image.version)
    assert (STREAM, 0) not in cluster[1].broker.partitions, "no second log is made in its place"

    await cluster[1].stop()
    await cluster[1].start()
    await until(lambda: set(cluster.controller.placed().isr) == {1, 2, 3}, "it is in sync again")
    await cluster.become_equal()
    assert cluster[1].lost_replicas == ()


async def test_a_follower_with_a_bug_is_told_of_and_the_leader_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"before"))
    original = BrokerPartitionHost.receive

    def broken(self: BrokerPartitionHost, *given: Any) -> int:
        if self.broker_id == 3:
            raise KeyError("a planted bug")
        return original(self, *given)

    monkeypatch.setattr(BrokerPartitionHost, "receive", broken)
    told = cluster[1].append(b"goes on")
    await until(lambda: cluster[3].lost, "the controller is told")
    cluster.controller.change(isr=(1, 2))

    await appended(told)
    assert not cluster[3].broker.failed.done()


async def test_the_only_member_of_the_isr_stays_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else is known to have its records; it leads again after a restart."""
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"before"))
    cluster.controller.unreachable = True
    cluster.controller.change(isr=(1,))
    await until(lambda: cluster[1].partition().replica.isr_size == 1, "the leader knows")
    with monkeypatch.context() as patch:
        plant(patch, cluster[1])
        # Below the minimum only acks=leader is taken.
        cluster[1].append(b"fails", acks=Acks.LEADER)
        await until(lambda: (STREAM, 0) in cluster[1].broker.lost, "it is served no more")
    cluster.controller.publish()
    await cluster[1].broker.applied(cluster.controller.image.version)

    assert cluster[1].lost == []
