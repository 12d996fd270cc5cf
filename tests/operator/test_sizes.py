"""The sizes of partitions: requested periodically, and nothing waits for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

import tidelog.testing
from support.waiting import until
from tidelog.model import ReplicaDescription
from tidelog_operator.sizes import Sizes, sizes_of

COPY = ReplicaDescription(
    name="orders", stream_id=bytes(16), partition=0, broker_id=0, leader=False, state="online",
    log_start_offset=0, high_watermark=0, log_end_offset=0, durable_offset=0, bytes=0, segments=1,
)  # fmt: skip


@pytest.fixture
async def fake() -> AsyncIterator[tidelog.testing.FakeCluster]:
    async with tidelog.testing.cluster(3) as made:
        yield made


def copy(partition: int, broker: int, size: int, *, leader: bool = False) -> ReplicaDescription:
    return replace(COPY, partition=partition, broker_id=broker, bytes=size, leader=leader)


def unreachable(partition: int, broker: int) -> ReplicaDescription:
    return replace(COPY, partition=partition, broker_id=broker, state="unreachable")


def test_the_leader_reports_the_size_of_a_partition() -> None:
    copies = [copy(0, 0, 70), copy(0, 1, 50, leader=True), copy(0, 2, 0)]

    assert sizes_of(copies, {}) == {("orders", 0): 50}


def test_without_the_leader_the_largest_replica_counts() -> None:
    assert sizes_of([copy(0, 0, 7), unreachable(0, 1), copy(0, 2, 9)], {}) == {("orders", 0): 9}


def test_unknown_sizes_stay_and_sizes_of_deleted_partitions_disappear() -> None:
    before = {("orders", 0): 5, ("orders", 1): 6, ("deleted", 0): 7}

    after = sizes_of([copy(0, 0, 8), unreachable(1, 1), unreachable(2, 1)], before)

    assert after == {("orders", 0): 8, ("orders", 1): 6}


async def test_sizes_are_requested_once_per_period_in_the_background(
    fake: tidelog.testing.FakeCluster,
) -> None:
    async with fake.connect() as client:
        await client.create_stream("orders", partitions=2)
        slow, fast = Sizes(), Sizes(period_seconds=0.0)

        slow.ask(client)
        assert slow.known is None
        await until(lambda: slow.known is not None, "the sizes are known")
        await client.create_stream("later")
        slow.ask(client)
        fast.ask(client)
        await until(lambda: fast.known is not None, "the sizes are known again")

        assert list(slow.known or ()) == [("orders", 0), ("orders", 1)]
        assert len(fast.known or ()) == 3
        await slow.stop()
        await fast.stop()


async def test_a_running_request_can_be_cancelled_and_repeated(fake: tidelog.testing.FakeCluster) -> None:
    sizes = Sizes(period_seconds=0.0)
    async with fake.connect() as client:
        sizes.ask(client)
        await sizes.stop()
    assert sizes.known is None

    async with fake.connect() as client:
        sizes.ask(client)
        await until(lambda: sizes.known is not None, "the sizes are known")
        await sizes.stop()
