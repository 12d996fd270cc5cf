"""R18: whole brokers whose machine's clock is a month ahead: what they date, delete, lead and tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tidelog
from quorum.services import Brokers, Node, started
from tidelog.model import Retention, StreamSettings
from tidelog_broker.clock import system_clock
from tidelog_broker.writing.partition import Partition

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
MONTH = 30 * DAY
STREAM = "dated"
SETTINGS = StreamSettings(segment_bytes=1 << 16, batch_bytes_max=1 << 15)


def partition(node: Node) -> Partition:
    assert node.service is not None
    return next(iter(node.service.broker.partitions.values()))


async def written(client: tidelog.Client, count: int = 1) -> int:
    """Appends records of which few fit into a segment; the newest append time."""
    async with client.producer(STREAM) as producer:
        for _ in range(count):
            newest = await producer.send(bytes(30_000))
    return newest.append_time_us


async def swept(node: Node) -> int:
    """The log start after retention has looked."""
    assert node.service is not None
    await node.service.broker._maintenance.sweep()
    return partition(node).log.start_offset


def retention_behind_us(node: Node) -> int:
    assert node.service is not None
    return node.service.broker._maintenance.retention.behind_us


async def made(client: tidelog.Client, replicas: tuple[int, ...]) -> None:
    await client.create_stream(
        STREAM,
        replication_factor=len(replicas),
        retention=Retention(age_ms=DAY // 1000),
        settings=SETTINGS,
        replicas=[replicas],
    )


@pytest.mark.long
@pytest.mark.parametrize("controller", [True, False])
async def test_r18_a_leader_a_month_ahead_dates_and_deletes_nothing_so_and_hands_over(
    tmp_path: Path, controller: bool
) -> None:
    async with started(tmp_path, 3) as brokers, brokers.client() as client:
        bad = next(node for node in brokers.nodes if (node.quorum.active is not None) is controller)
        good = [node for node in brokers.nodes if node is not bad]
        await made(client, (bad.id, *(node.id for node in good)))
        await written(client, 8)
        await brokers.eventually(lambda: not bad.quorum.clock.off)

        bad.clock_off_us = MONTH
        assert abs(await written(client) - system_clock()) < 10 * SECOND
        await brokers.eventually(lambda: bad.quorum.clock.off)
        assert abs(await written(client) - system_clock()) < 10 * SECOND
        assert await swept(bad) == 0
        assert not any(node.quorum.clock.off for node in good)

        # It was off for some seconds: another one leads, and none of it is lost.
        await brokers.eventually(lambda: any(partition(node).leads for node in good))
        assert abs(await written(client) - system_clock()) < 10 * SECOND
        assert [await swept(node) for node in brokers.nodes] == [0, 0, 0]

        bad.clock_off_us = 0
        await brokers.eventually(lambda: not bad.quorum.clock.off)


@pytest.mark.long
async def test_r18_what_a_leader_a_month_behind_writes_is_not_old_to_the_next_one(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as brokers, brokers.client() as client:
        bad, *good = brokers.nodes
        await brokers.eventually(lambda: not bad.quorum.clock.off)
        bad.clock_off_us = -MONTH
        await brokers.eventually(lambda: bad.quorum.clock.off)
        # Nothing stands before it in the log that could not be later.
        await client.create_stream(
            STREAM,
            replication_factor=3,
            retention=Retention(age_ms=DAY // 1000),
            settings=replace(SETTINGS, timestamp_ahead_ms_max=2 * MONTH // 1000),
            replicas=[(bad.id, *(node.id for node in good))],
        )
        assert abs(await written(client, 8) - system_clock()) < 10 * SECOND

        await brokers.eventually(lambda: any(partition(node).leads for node in good))
        assert [await swept(node) for node in brokers.nodes] == [0, 0, 0]


async def lone(brokers: Brokers, client: tidelog.Client) -> Node:
    (node,) = brokers.nodes
    await made(client, (0,))
    await written(client, 8)
    await brokers.eventually(lambda: node.quorum.clock.retention_us() is not None)
    assert await swept(node) == 0
    assert len(partition(node).log.segments) > 2
    return node


async def test_r18_a_lone_broker_does_not_follow_its_clock_when_that_jumps(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as brokers, brokers.client() as client:
        node = await lone(brokers, client)

        node.clock_off_us = MONTH
        assert abs(await written(client) - system_clock()) < 10 * SECOND
        await brokers.eventually(lambda: node.quorum.clock.off)
        assert await swept(node) == 0
        assert retention_behind_us(node) == 0

        node.clock_off_us = 0
        await brokers.eventually(lambda: not node.quorum.clock.off)
        assert abs(await written(client) - system_clock()) < 10 * SECOND


async def test_r18_a_start_with_a_clock_that_is_wrong_deletes_nothing_at_once(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as brokers, brokers.client() as client:
        node = await lone(brokers, client)
        await node.stop()
        node.clock_off_us = MONTH
        await node.start()
        await brokers.eventually(lambda: node.quorum.clock.retention_us() is not None)

        assert await swept(node) == 0
        assert MONTH - HOUR < retention_behind_us(node) <= MONTH + HOUR


async def test_r18_a_log_that_is_dated_ahead_is_forgotten_when_it_was_there_for_long(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, 1) as brokers, brokers.client() as client:
        (node,) = brokers.nodes
        await node.stop()
        node.clock_off_us = 12 * MONTH
        await node.start()
        await made(client, (0,))
        await written(client, 8)
        await node.stop()
        node.clock_off_us = 0
        await node.start()
        await brokers.eventually(lambda: node.quorum.clock.retention_us() is not None)
        assert await swept(node) == 0
        assert node.service is not None
        assert node.service.broker._maintenance.retention.dated_ahead == 1
        closed = partition(node).log.segments[-2].next_offset

        clock = node.quorum.clock
        passes = clock.elapsed
        clock.elapsed = lambda: passes() + DAY + HOUR
        await swept(node)
        await brokers.eventually(lambda: partition(node).log.start_offset == closed)
