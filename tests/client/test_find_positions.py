"""Positions in many streams at once: how many requests it costs, and what moves meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import tidelog
import tidelog.testing
from support.fake_broker import FakeBroker
from support.waiting import until
from tidelog import Client, ClientOptions, Position, RetryPolicy, errors
from tidelog.model import FoundPosition

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=10)


@pytest.fixture
async def brokers() -> AsyncIterator[list[FakeBroker]]:
    """Three that know of each other; the first leads what is made."""
    made = [FakeBroker(number) for number in range(3)]
    for broker in made:
        await broker.start()
        broker.peers = made
    yield made
    for broker in made:
        await broker.stop()


def connect(brokers: list[FakeBroker]) -> Client:
    return tidelog.connect([broker.address for broker in brokers], options=ClientOptions(retry=QUICK))


async def test_many_streams_cost_one_request_for_each_leader(brokers: list[FakeBroker]) -> None:
    names = [f"s{number}" for number in range(20)]
    for number, name in enumerate(names):
        brokers[0].add_stream(name, partitions=3)
        for partition in range(3):
            brokers[0].lead(name, partition, number % 2)
    async with connect(brokers) as log:
        for broker in brokers:
            broker.calls.clear()
        found = await log.find_positions(dict.fromkeys(names, "latest"))
    assert sorted(found) == sorted(names)
    assert all(sorted(stream.positions) == [0, 1, 2] for stream in found.values())
    assert sum(broker.calls.get("Offsets", 0) for broker in brokers) == 2
    assert sum(broker.calls.get("Resolve", 0) for broker in brokers) <= 6


async def test_only_the_partition_whose_leader_changes_is_asked_for_again(brokers: list[FakeBroker]) -> None:
    first, refusing, third = brokers
    first.add_stream("s", partitions=2)
    first.lead("s", 1, 1)
    refusing.offsets_refused = errors.Unavailable("starting")
    async with connect(brokers) as log:
        asked = asyncio.create_task(log.find_positions({"s": "latest"}))
        await until(lambda: refusing.calls.get("Offsets", 0) >= 2, "the second request", 10)
        first.lead("s", 1, 2)
        found = await asked
    assert sorted(found["s"].positions) == [0, 1]
    assert (first.calls.get("Offsets", 0), third.calls["Offsets"]) == (1, 1)


@pytest.fixture
async def log() -> AsyncIterator[Client]:
    async with tidelog.testing.cluster(1) as fake, fake.connect() as client:
        yield client


async def test_starts_of_every_kind_are_found_with_the_bounds_of_the_log(log: Client) -> None:
    await log.create_stream("s", partitions=5)
    async with log.producer("s") as producer:
        for number in range(4):
            for partition in range(5):
                moment = datetime(2026, 1, 1, 0, number, tzinfo=UTC)
                await producer.send(b"v", partition=partition, timestamp=moment)
    await log.delete_records("s", 4, 2)
    moment = datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
    found = (await log.find_positions({"s": {0: "earliest", 1: "latest", 2: 3, 3: moment, 4: 1}}))["s"]
    epoch = (await log.describe_stream("s")).partitions[0].leader_epoch
    assert found.positions == {
        0: FoundPosition(Position(0), 0, 4),
        1: FoundPosition(Position(4, epoch), 0, 4),
        2: FoundPosition(Position(3, epoch), 0, 4),
        3: FoundPosition(Position(2, epoch), 0, 4),
    }
    assert isinstance(found.errors[4], errors.OffsetOutOfRange)


async def test_a_missing_stream_is_left_out_and_a_missing_partition_is_an_error(
    log: Client,
) -> None:
    await log.create_stream("s")
    found = await log.find_positions({"s": {0: "latest", 7: "latest"}, "gone": "latest"})
    assert list(found) == ["s"]
    assert list(found["s"].positions) == [0]
    assert isinstance(found["s"].errors[7], errors.PartitionNotFound)
    assert found["s"].partition_count == 1


async def test_no_stream_is_no_request(log: Client) -> None:
    assert await log.find_positions({}) == {}
