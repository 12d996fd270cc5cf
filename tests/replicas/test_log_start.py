"""The log start offset of several replicas: inside a batch, and on a disk that does not take it (R11)."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from replicas.conftest import STREAM, Cluster, Node, appended
from support.waiting import until
from tidelog.errors import DiskFull, NotEnoughReplicas
from tidelog_broker.upkeep import maintenance


class Checkpoints:
    """Those of a broker, on a disk that is full until it is told otherwise."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.refused = True, 0
        self._really_save = node.broker._store.checkpoints.save
        monkeypatch.setattr(node.broker._store.checkpoints, "save", self._save)

    def _save(self) -> None:
        if self.full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self._really_save()


async def with_a_start_inside_a_batch(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create(segment_bytes=1 << 20)
    for number in range(6):
        await appended(cluster[1].append(*(b"%d" % number * 400 for _ in range(10))))
    await cluster.become_equal()
    assert await cluster[1].broker.delete_records(cluster[1].partition(), 33) == 33


async def test_a_new_replica_begins_with_the_batch_that_holds_the_log_start(cluster: Cluster) -> None:
    await with_a_start_inside_a_batch(cluster)
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    await until(lambda: (STREAM, 0) not in cluster[3].broker.partitions, "it leaves")

    cluster.controller.change(replicas=(1, 2, 3))

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it joins")
    await appended(cluster[1].append(b"more"))
    await cluster.become_equal()
    assert [node.partition().log.start_offset for node in cluster.nodes.values()] == [33, 33, 33]
    await cluster[3].kill()
    await cluster[3].start()
    await cluster.become_equal()
    assert cluster[3].partition().log.start_offset == 33


async def test_a_replica_that_lost_its_log_begins_there_too_and_can_lead(cluster: Cluster) -> None:
    await with_a_start_inside_a_batch(cluster)
    await cluster[3].stop()
    folder: Path = next((cluster[3].folder / "streams").glob("orders~*")) / "0"
    os.remove(folder / "leader-epochs")
    await cluster[3].start()
    cluster.controller.change(isr=(1, 2))

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it is full again")
    await cluster.become_equal()
    cluster.controller.change(leader=3)
    await until(lambda: cluster[3].partition().leads, "it leads")
    await appended(cluster[3].append(b"more"))

    await cluster.become_equal()
    assert [node.partition().log.start_offset for node in cluster.nodes.values()] == [33, 33, 33]


async def test_a_follower_that_was_away_while_more_was_deleted_than_it_had(cluster: Cluster) -> None:
    await with_a_start_inside_a_batch(cluster)
    await cluster[3].kill()
    cluster.controller.change(isr=(1, 2))
    await until(lambda: cluster[1].partition().replica.isr_size == 2, "the image")
    for number in range(6):
        await appended(cluster[1].append(*(b"%d" % number * 400 for _ in range(10))))
    await cluster[1].broker.delete_records(cluster[1].partition(), 95)

    await cluster[3].start()

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it joins")
    await cluster.become_equal()
    assert cluster[3].partition().log.start_offset == 95


async def test_a_deletion_waits_for_a_follower_whose_disk_does_not_take_it_yet(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "START_RETRY_SECONDS", 0.01)
    await with_a_start_inside_a_batch(cluster)
    disk = Checkpoints(cluster[3], monkeypatch)
    deleting = asyncio.create_task(cluster[1].broker.delete_records(cluster[1].partition(), 40))
    await until(lambda: disk.refused > 5, "it is tried again and again")
    assert not deleting.done()
    assert cluster[3].partition().log.start_offset == 33

    disk.full = False

    assert await deleting == 40
    assert cluster[3].broker._store.checkpoints.log_start_offset((STREAM, 0)) == 40


async def test_a_deletion_that_the_leaders_disk_does_not_take_is_refused_and_moved_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_a_start_inside_a_batch(cluster)
    disk = Checkpoints(cluster[1], monkeypatch)
    with pytest.raises(DiskFull):
        await cluster[1].broker.delete_records(cluster[1].partition(), 40)
    assert cluster[1].partition().log.start_offset == 33

    disk.full = False

    assert await cluster[1].broker.delete_records(cluster[1].partition(), 40) == 40


async def test_below_the_minimum_a_deletion_is_refused_and_moved_nothing(cluster: Cluster) -> None:
    await with_a_start_inside_a_batch(cluster)
    for follower in (cluster[2], cluster[3]):
        await follower.kill()
    cluster.controller.change(isr=(1,))
    await until(lambda: cluster[1].partition().replica.isr_size == 1, "the others left")
    with pytest.raises(NotEnoughReplicas, match="has 1 replica in sync and needs 2"):
        await cluster[1].broker.delete_records(cluster[1].partition(), 40)
    assert cluster[1].partition().log.start_offset == 33
