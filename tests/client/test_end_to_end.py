"""Client and broker together: real processes, real files, kills."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidelog
from support.broker import BrokerProcess
from support.waiting import until
from tidelog import Client, Position, ProducerOptions, blocking, errors
from tidelog.records import NO_PRODUCER_ID


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that leave it alive."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One to be killed."""
    with BrokerProcess(tmp_path) as broker:
        yield broker


@pytest.fixture
def stream() -> str:
    return f"s-{uuid.uuid4()}"


async def test_the_readme_example_works(broker: BrokerProcess, stream: str) -> None:
    async with tidelog.connect(broker.address) as log:
        await log.create_stream(stream, partitions=3)
        async with log.producer(stream) as producer:
            receipt = await producer.send(b"value", key=b"k", headers={"h": b"v"})
            assert receipt.offset == 0
            producer.send_nowait(b"value")
            receipts = await producer.send_batch(pa.table({"value": [b"x"] * 1000}))
            assert sum(found.last_offset - found.offset + 1 for found in receipts) == 1000
        records = [record async for record in log.reader(stream, start="earliest", follow=False)]
        assert len(records) == 1002
        batches = [batch async for batch in log.reader(stream, end="latest").batches()]
        assert sum(batch.num_rows for batch in batches) == 1002


async def test_streams_are_described_altered_listed_and_deleted(broker: BrokerProcess, stream: str) -> None:
    async with tidelog.connect(broker.address) as log:
        made = await log.create_stream(stream, partitions=2, durability="page-cache")
        assert (await log.describe_stream(stream)).stream_id == made.stream_id
        assert (
            await log.create_stream(stream, partitions=2, durability="page-cache")
        ).version == made.version
        with pytest.raises(errors.StreamExists):
            await log.create_stream(stream, partitions=5)
        altered = await log.alter_stream(stream, partitions=4, expected_version=made.version)
        assert len(altered.partitions) == 4
        with pytest.raises(errors.VersionConflict):
            await log.alter_stream(stream, partitions=5, expected_version=made.version)
        assert [stream.name for stream in await log.list_streams(f"{stream}|t")] == [stream]
        assert {replica.partition for replica in await log.describe_replicas(stream)} == {0, 1, 2, 3}
        assert await log.delete_stream(stream) == made.stream_id
        with pytest.raises(errors.StreamNotFound):
            await log.describe_stream(stream)


async def test_readers_begin_anywhere_and_survive_deleted_records_by_policy(
    broker: BrokerProcess, stream: str
) -> None:
    async with tidelog.connect(broker.address) as log:
        await log.create_stream(stream)
        async with log.producer(stream) as producer:
            for number in range(10):
                await producer.send(b"%d" % number)
        found = [record.offset async for record in log.reader(stream, start=3, end=6)]
        assert found == [3, 4, 5]
        assert await log.delete_records(stream, 0, 5) == 5
        assert await log.offsets(stream) == {0: (5, 10)}
        with pytest.raises(errors.OffsetOutOfRange):
            await anext(log.reader(stream, start=Position(2)))
        again = log.reader(stream, start=2, end=10, on_truncated="rewind")
        assert [record.offset async for record in again] == [5, 6, 7, 8, 9]


async def test_a_conditional_append_is_decided_by_the_broker(broker: BrokerProcess, stream: str) -> None:
    async with tidelog.connect(broker.address) as log:
        await log.create_stream(stream)
        async with log.producer(stream) as producer:
            assert (await producer.send(b"a", expected_offset=0)).offset == 0
            with pytest.raises(errors.UnexpectedOffset):
                await producer.send(b"b", expected_offset=0)
            assert (await producer.send(b"c", expected_offset=1)).offset == 1


async def test_errors_of_the_broker_harm_only_the_batch_they_are_about(
    broker: BrokerProcess, stream: str
) -> None:
    async with tidelog.connect(broker.address) as log:
        await log.create_stream(stream)
        async with log.producer(stream, options=ProducerOptions(batch_bytes=4096)) as producer:
            future = pa.array([1 << 60], pa.timestamp("us", tz="UTC"))
            bad = pa.table({"value": [b"bad"], "timestamp": future})
            sends = [producer.send(b"a"), producer.send_batch(bad), producer.send(b"b")]
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(results[1], errors.InvalidTimestamp)
        values = [record.value async for record in log.reader(stream, follow=False)]
        assert sorted(value or b"" for value in values) == [b"a", b"b"]


async def _write(log: Client, stream: str, producer_number: int, stop: asyncio.Event) -> list[bytes]:
    """Sends until told to stop; what was acknowledged, in order."""
    acknowledged: list[bytes] = []

    async def one(number: int) -> None:
        value = b"%d %d" % (producer_number, number)
        await producer.send(value)
        acknowledged.append(value)

    async with log.producer(stream) as producer:
        number = 0
        while not stop.is_set():
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(one(number))
                    number += 1
    return acknowledged


@pytest.mark.long
async def test_kills_lose_double_and_reorder_nothing_that_was_acknowledged(
    mortal: BrokerProcess, stream: str
) -> None:
    async with tidelog.connect(mortal.address) as log:
        await log.create_stream(stream)
        stop = asyncio.Event()
        writers = [asyncio.create_task(_write(log, stream, number, stop)) for number in range(3)]
        reader = log.reader(stream)
        seen: list[bytes] = []

        async def follow() -> None:
            while True:
                seen.append((await anext(reader)).value or b"")

        following = asyncio.create_task(follow())
        for _ in range(4):
            target = len(seen) + 300
            await until(lambda at=target: following.done() or len(seen) >= at, "records", 60)  # type: ignore[misc]
            assert not following.done()
            await asyncio.to_thread(mortal.kill)
            await asyncio.to_thread(mortal.start)
        stop.set()
        acknowledged = [value for values in await asyncio.gather(*writers) for value in values]
        stored = [record.value or b"" async for record in log.reader(stream, follow=False)]
        await until(lambda: following.done() or len(seen) >= len(stored), "the last records", 60)
        assert not following.done()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await reader.aclose()
    assert len(stored) == len(set(stored)), "an idempotent producer's record stands twice"
    assert set(acknowledged) <= set(stored), "an acknowledged record is missing"
    for number in range(3):
        own = [int(value.split()[1]) for value in stored if value.startswith(b"%d " % number)]
        assert own == sorted(own), "the order of a producer changed"
    assert seen == stored, "a reader that followed saw something else"


def test_the_blocking_client_reads_what_it_wrote(broker: BrokerProcess, stream: str) -> None:
    with blocking.connect(broker.address) as log:
        log.create_stream(stream)
        with log.producer(stream, compression="zstd") as producer:
            for number in range(10_000):
                producer.send_nowait(b"%d" % number, key=b"k")
        assert [record.value for record in log.reader(stream, follow=False)] == [
            b"%d" % n for n in range(10_000)
        ]


async def test_a_producer_without_idempotence_has_no_id(broker: BrokerProcess, stream: str) -> None:
    async with tidelog.connect(broker.address) as log:
        await log.create_stream(stream)
        async with log.producer(stream, idempotent=False) as producer:
            await producer.send(b"v")
            assert producer._sender._identity.producer_id == NO_PRODUCER_ID
        assert [record.value async for record in log.reader(stream, follow=False)] == [b"v"]
