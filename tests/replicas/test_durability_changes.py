"""A stream's durability changes under load: what was only written does not pass for flushed (R17)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog.model import Durability
from tidelog_broker.core.metadata.commands import Suspect
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.writing.flush_rounds import FlushRounds

FSYNC, PAGE_CACHE = Durability.FSYNC, Durability.PAGE_CACHE


def folder_of(cluster: Cluster, number: int) -> Path:
    return next((cluster[number].folder / "streams").glob("orders~*")) / "0"


def mark(cluster: Cluster, number: int) -> Path:
    return folder_of(cluster, number) / "page-cache"


async def written(cluster: Cluster, count: int = 4, durability: Durability = PAGE_CACHE) -> None:
    await cluster.start()
    await cluster.create(durability=durability)
    for number in range(count):
        await appended(cluster[1].append(b"%d" % number * 300))
    await cluster.become_equal()


@contextmanager
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing gets to a disk."""
    with monkeypatch.context() as patch:
        patch.setattr(FlushRounds, "_flush", lambda self, partitions: None)
        yield


async def test_what_was_written_is_flushed_on_all_replicas_when_fsync_begins(cluster: Cluster) -> None:
    await written(cluster)
    assert all(node.partition().log.durable_offset < 4 for node in cluster.nodes.values())

    cluster.controller.configure(durability=FSYNC)

    for node in cluster.nodes.values():
        await until(lambda node=node: node.partition().log.durable_offset == 4, "it is flushed")  # type: ignore[misc]
        await until(lambda node=node: not mark(cluster, node.id).exists(), "the mark went")  # type: ignore[misc]
    await appended(cluster[1].append(b"more"))


async def test_acknowledgements_wait_until_every_member_has_flushed_and_said_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(cluster)
    controller = cluster.controller
    controller.hold(3)  # For it the stream is one of the page cache still.
    controller.configure(durability=FSYNC)
    await until(
        lambda: cluster[1].partition().replica.fsync and cluster[2].partition().replica.fsync, "two know"
    )
    await until(lambda: cluster[1].partition().log.durable_offset == 4, "the leader has flushed")

    told = cluster[1].append(b"more")
    await until(lambda: cluster[3].partition().log.end_offset == 5, "it is written on 3")
    role = cluster[1].partition().replica.role
    assert isinstance(role, LeaderPartition)
    await until(lambda: role.followers[2].durable == 5, "it is flushed on 2")
    await until(lambda: role.followers[3].end == 5, "the leader knows what 3 has")

    assert role.followers[3].durable == 0
    assert not told.done()
    assert cluster[1].partition().high_watermark == 4
    controller.release(3)
    await appended(told)


@pytest.mark.parametrize("steps", [(FSYNC,), (FSYNC, PAGE_CACHE, FSYNC)], ids=["once", "to and fro"])
async def test_a_power_loss_before_the_flush_makes_an_fsync_replica_suspect(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, steps: tuple[Durability, ...]
) -> None:
    await written(cluster)
    with without_flushes(monkeypatch):
        for durability in steps:
            cluster.controller.configure(durability=durability)
        await until(lambda: cluster[3].partition().replica.fsync, "it knows")
        assert mark(cluster, 3).exists()
        await cluster[3].kill()
    os.truncate(next(folder_of(cluster, 3).glob("*.log")), 0)

    await cluster[3].start(same_boot=False)

    assert cluster[3].suspects == (Suspect(STREAM, 0, leader_epoch=0, log_end_offset=0),)


async def test_a_broker_that_missed_both_changes_is_suspect_by_what_it_wrote(cluster: Cluster) -> None:
    """page-cache and back to fsync, and the broker was away when fsync came."""
    await written(cluster, durability=FSYNC)
    cluster.controller.configure(durability=PAGE_CACHE)
    await until(
        lambda: not cluster[3].partition().replica.fsync and not cluster[1].partition().replica.fsync,
        "they know",
    )
    await appended(cluster[1].append(b"written"))
    await until(lambda: cluster[3].partition().log.end_offset == 5, "3 has it")
    await cluster[3].kill()
    cluster.controller.configure(durability=FSYNC)

    await cluster[3].start(same_boot=False)

    assert [one.partition for one in cluster[3].suspects] == [0]


async def test_a_replica_that_was_flushed_under_fsync_is_not_suspect(cluster: Cluster) -> None:
    await written(cluster)
    cluster.controller.configure(durability=FSYNC)
    await until(lambda: not mark(cluster, 3).exists(), "it is flushed")
    await cluster[3].kill()

    await cluster[3].start(same_boot=False)

    assert cluster[3].suspects == ()


async def test_nothing_counts_as_written_before_the_mark_of_it_is_on_the_disk(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(cluster, durability=FSYNC)
    assert not mark(cluster, 1).exists()
    with monkeypatch.context() as patch:
        patch.setattr("tidelog_broker.replication.durability.MARK_RETRY_MS", 10)
        patch.setattr("tidelog_broker.storage.log.partition_log.mark_page_cache", failing)
        cluster.controller.configure(durability=PAGE_CACHE)
        await cluster[1].broker.applied(cluster.controller.image.version)
        await until(lambda: tries[0] > 3, "it was tried")
        assert cluster[1].partition().replica.fsync
        await appended(cluster[1].append(b"flushed"))
        assert cluster[1].partition().log.durable_offset == 5

    await until(lambda: not cluster[1].partition().replica.fsync, "the disk takes it")

    assert mark(cluster, 1).exists()


tries = [0]


def failing(*arguments: object) -> None:
    tries[0] += 1
    raise OSError("no room")


async def test_below_the_feature_level_what_was_written_does_not_pass_for_flushed_either(
    cluster: Cluster,
) -> None:
    cluster.controller.publish(feature_level=1)
    await written(cluster)
    role = cluster[1].partition().replica.role
    assert isinstance(role, LeaderPartition)
    await until(lambda: [one.durable for one in role.followers.values()] == [4, 4], "both have it")

    role.configured(True, 1000)

    assert [one.durable for one in role.followers.values()] == [0, 0]


async def test_logs_of_earlier_software_are_marked_at_a_start(cluster: Cluster) -> None:
    await written(cluster)
    await cluster[3].stop()
    mark(cluster, 3).unlink()

    await cluster[3].start()

    assert mark(cluster, 3).exists()
    assert not cluster[3].partition().replica.fsync
    assert cluster[3].suspects == ()


async def test_the_mark_goes_after_a_clean_stop_if_the_stream_is_flushed_by_then(cluster: Cluster) -> None:
    await written(cluster)
    await cluster[3].stop()
    cluster.controller.configure(durability=FSYNC)

    await cluster[3].start(same_boot=False)

    assert cluster[3].suspects == ()
    await until(lambda: not mark(cluster, 3).exists(), "it goes")


async def test_the_mark_stays_while_a_flush_for_it_is_under_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(cluster)
    loop, gate = asyncio.get_running_loop(), asyncio.Event()
    sync = LogStore.sync

    def slow(store: LogStore, logs: list[object], *arguments: object, **named: object) -> None:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        sync(store, logs, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(LogStore, "sync", slow)
    cluster.controller.configure(durability=FSYNC)
    await until(lambda: all(node.partition().replica.fsync for node in cluster.nodes.values()), "all know")

    for node in cluster.nodes.values():
        await node.broker._rounds.drained()
    assert all(mark(cluster, number).exists() for number in (1, 2, 3))
    gate.set()
    await until(lambda: not any(mark(cluster, number).exists() for number in (1, 2, 3)), "it is flushed")
