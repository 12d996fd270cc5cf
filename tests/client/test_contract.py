"""What a client may rely on, tried on a real broker and on `tidelog.testing`: neither may differ."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import tidelog
import tidelog.testing
from support.broker import BrokerProcess
from support.waiting import until
from tidelog import AfterBytes, Client, Position, ProducerOptions, errors


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(params=["broker", "memory"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    if request.param == "broker":
        async with tidelog.connect(request.getfixturevalue("process").address) as client:
            yield client
    else:
        async with tidelog.testing.cluster(1) as fake, fake.connect() as client:
            yield client


@pytest.fixture
def name() -> str:
    return f"s-{uuid.uuid4()}"


async def filled(log: Client, name: str, count: int = 10) -> None:
    """A stream whose record n has the value n, each in a batch of its own."""
    await log.create_stream(name)
    async with log.producer(name) as producer:
        for number in range(count):
            await producer.send(b"%d" % number)


async def test_streams_are_made_once_described_altered_and_deleted(log: Client, name: str) -> None:
    made = await log.create_stream(name, partitions=2, labels={"team": "blue"})
    again = await log.create_stream(name, partitions=2)
    assert (again.stream_id, again.version) == (made.stream_id, made.version)
    assert [part.partition for part in made.partitions] == [0, 1]
    assert (made.config.replication_factor, made.config.min_insync_replicas) == (1, 2)
    with pytest.raises(errors.StreamExists):
        await log.create_stream(name, partitions=3)
    with pytest.raises(errors.InvalidRequest):
        await log.alter_stream(name, partitions=1)
    altered = await log.alter_stream(name, partitions=4, expected_version=made.version)
    assert (len(altered.partitions), altered.labels) == (4, {"team": "blue"})
    with pytest.raises(errors.VersionConflict):
        await log.alter_stream(name, partitions=5, expected_version=made.version)
    assert [stream.name for stream in await log.list_streams(f"{name}|x")] == [name]
    with pytest.raises(errors.StreamNotFound):
        await log.delete_stream(name, stream_id=bytes(16))
    assert await log.delete_stream(name) == made.stream_id
    with pytest.raises(errors.StreamNotFound):
        await log.describe_stream(name)


async def test_a_stream_has_one_owner_and_changes_hands_when_it_is_told(log: Client, name: str) -> None:
    made = await log.create_stream(name, owner="shop/orders")
    again = await log.create_stream(name, owner="shop/orders")
    assert (made.owner, again.stream_id) == ("shop/orders", made.stream_id)
    with pytest.raises(errors.StreamExists, match="shop/orders"):
        await log.create_stream(name, owner="bank/orders")

    let_go = await log.alter_stream(name, owner="", expected_version=made.version)
    with pytest.raises(errors.VersionConflict):
        await log.alter_stream(name, owner="thief", expected_version=made.version)
    taken = await log.alter_stream(name, owner="bank/orders", expected_version=let_go.version)

    assert (let_go.owner, taken.owner, taken.stream_id) == ("", "bank/orders", made.stream_id)
    assert (await log.alter_stream(name, partitions=2)).owner == "bank/orders"
    assert (await log.describe_stream(name)).owner == "bank/orders"


async def test_partitions_lie_on_the_brokers_that_are_said(log: Client, name: str) -> None:
    made = await log.create_stream(name, partitions=2, replication_factor=1, replicas=[[0], [0]])
    grown = await log.alter_stream(name, partitions=3, new_replicas=[[0]])

    assert [part.replicas for part in made.partitions] == [(0,), (0,)]
    assert [part.replicas for part in grown.partitions] == [(0,), (0,), (0,)]


async def test_what_cannot_be_made_is_refused(log: Client, name: str) -> None:
    planned = await log.create_stream(name, partitions=3, validate_only=True)
    assert planned.config.partitions == 3
    with pytest.raises(errors.StreamNotFound):
        await log.describe_stream(name)
    with pytest.raises(errors.InvalidRequest):
        await log.create_stream(name, replication_factor=2)
    with pytest.raises(errors.InvalidRequest):
        await log.list_streams("(")


async def test_receipts_say_where_records_are_and_readers_find_them_there(log: Client, name: str) -> None:
    await log.create_stream(name, partitions=3)
    async with log.producer(name, compression="zstd") as producer:
        receipts = [
            await producer.send(b"%d" % number, key=b"%d" % number, headers={"h": b"x", "none": None})
            for number in range(20)
        ]
    found = {(record.partition, record.offset): record async for record in log.reader(name, follow=False)}
    assert len(found) == 20
    for number, receipt in enumerate(receipts):
        record = found[receipt.partition, receipt.offset]
        assert (record.value, record.key) == (b"%d" % number, b"%d" % number)
        assert record.headers == (("h", b"x"), ("none", None))
        assert (record.leader_epoch, record.append_time_us) == (receipt.leader_epoch, receipt.append_time_us)


async def test_offsets_count_on_whatever_the_size_of_batches(log: Client, name: str) -> None:
    await log.create_stream(name)
    async with log.producer(name) as producer:
        sizes = [1, 1000, 3]
        for size in sizes:
            [receipt] = await producer.send_batch(pa.table({"value": [b"v"] * size}))
            assert receipt.last_offset - receipt.offset + 1 == size
    assert await log.offsets(name) == {0: (0, sum(sizes))}
    batches = [batch async for batch in log.reader(name, start=500, end=1002).batches(with_offsets=True)]
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(500, 1002))


async def test_a_conditional_append_happens_only_at_its_offset(log: Client, name: str) -> None:
    await log.create_stream(name)
    async with log.producer(name) as producer:
        assert (await producer.send(b"a", expected_offset=0)).offset == 0
        with pytest.raises(errors.UnexpectedOffset) as caught:
            await producer.send(b"b", expected_offset=0)
        assert caught.value.definite
        assert caught.value.details["log_end_offset"] == "1"
        assert (await producer.send(b"c", expected_offset=1)).offset == 1


async def test_a_bad_batch_is_refused_definitely_and_harms_no_other(log: Client, name: str) -> None:
    await log.create_stream(name)
    async with log.producer(name, options=ProducerOptions(batch_bytes=4096)) as producer:
        future = pa.array([1 << 60], pa.timestamp("us", tz="UTC"))
        bad = pa.table({"value": [b"bad"], "timestamp": future})
        sends = [producer.send(b"a"), producer.send_batch(bad), producer.send(b"b")]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(results[1], errors.InvalidTimestamp)
        with pytest.raises(errors.BatchTooLarge):
            await producer.send(bytes(2 << 20))
    assert sorted([record.value or b"" async for record in log.reader(name, follow=False)]) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", None), (4, 4), (Position(7), 7), (Position(10), None)],
    ids=["earliest", "latest", "offset", "position", "end"],
)
async def test_reading_begins_where_it_is_told(log: Client, name: str, start: Any, first: int | None) -> None:
    await filled(log, name)
    expected = [] if first is None else list(range(first, 10))
    assert [record.offset async for record in log.reader(name, start=start, follow=False)] == expected


async def test_reading_begins_at_a_time(log: Client, name: str) -> None:
    await log.create_stream(name)
    begin = datetime.now(UTC) - timedelta(hours=1)
    async with log.producer(name) as producer:
        stamps = [begin + timedelta(minutes=minute) for minute in range(5)]
        times = pa.array(stamps, pa.timestamp("us", tz="UTC"))
        await producer.send_batch(pa.table({"value": [b"v"] * 5, "timestamp": times}))
    for minute, first in ((-1, 0), (2, 2), (60, 5)):
        start = begin + timedelta(minutes=minute)
        found = [record.offset async for record in log.reader(name, start=start, follow=False)]
        assert found == list(range(first, 5))


async def test_a_reader_that_follows_gets_what_comes_and_ends_at_its_end(log: Client, name: str) -> None:
    await filled(log, name, 2)
    reader = log.reader(name, end=4)
    reading = asyncio.create_task(_all(reader))
    async with log.producer(name) as producer:
        for number in range(2, 6):
            await producer.send(b"%d" % number)
    assert await reading == [b"0", b"1", b"2", b"3"]
    position = reader.positions[0]
    assert position.offset == 4
    rest = log.reader(name, start=position, follow=False)
    assert await _all(rest) == [b"4", b"5"]


async def test_deleted_records_are_gone_for_every_position_below(log: Client, name: str) -> None:
    await filled(log, name)
    assert await log.delete_records(name, 0, 5) == 5
    assert await log.delete_records(name, 0, 3) == 5
    assert await log.offsets(name) == {0: (5, 10)}
    with pytest.raises(errors.InvalidRequest):
        await log.delete_records(name, 0, 11)
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        await anext(log.reader(name, start=Position(2)))
    assert (caught.value.details["log_start_offset"], caught.value.details["log_end_offset"]) == ("5", "10")
    again = log.reader(name, start=2, end=10, on_truncated="rewind")
    assert [record.offset async for record in again] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("policy", "first"), [("rewind", 6), ("earliest", 0), ("latest", 10)])
async def test_a_position_that_the_history_contradicts_follows_the_policy(
    log: Client, name: str, policy: Any, first: int
) -> None:
    await filled(log, name)
    other = Position(6, 1_000_000)
    with pytest.raises(errors.LogTruncated) as caught:
        await anext(log.reader(name, start=other))
    assert caught.value.details["divergence_offset"] == "6"
    reader = log.reader(name, start=other, end=11, on_truncated=policy)
    async with log.producer(name) as producer:
        # Not before the reader stands where its policy has it go on.
        reading = asyncio.create_task(anext(reader))
        if policy == "latest":
            while not reader._states or reader._states[0].next_offset != 10:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await producer.send(b"10")
        assert (await reading).offset == first
    await reader.aclose()


async def test_a_position_beyond_the_end_is_out_of_range(log: Client, name: str) -> None:
    await filled(log, name, 3)
    with pytest.raises(errors.OffsetOutOfRange):
        await anext(log.reader(name, start=Position(4)))


async def test_another_stream_of_the_same_name_is_another_one(log: Client, name: str) -> None:
    made = await log.create_stream(name)
    async with log.producer(name) as producer:
        await producer.send(b"v")
        await log.delete_stream(name)
        await log.create_stream(name)
        with pytest.raises(errors.StreamNotFound):
            await producer.send(b"w")
    with pytest.raises(errors.StreamNotFound):
        await anext(log.reader(name, stream_id=made.stream_id))
    assert await log.offsets(name) == {0: (0, 0)}


async def test_replicas_and_brokers_are_described(log: Client, name: str) -> None:
    await filled(log, name, 3)
    [replica] = await log.describe_replicas(name)
    assert (replica.leader, replica.high_watermark, replica.log_end_offset) == (True, 3, 3)
    cluster = await log.describe_cluster()
    assert [broker.broker_id for broker in cluster.brokers] == [replica.broker_id]
    assert cluster.controller == replica.broker_id


async def _all(reader: tidelog.Reader) -> list[bytes | None]:
    return [record.value async for record in reader]


async def test_a_start_may_be_the_edge_of_a_batch_behind_some_bytes(log: Client, name: str) -> None:
    await filled(log, name, 6)
    size = (await log.describe_replicas(name))[0].bytes // 6

    async def after(start: int, size: int) -> Position:
        return (await log.positions(name, {0: AfterBytes(Position(start), size)}))[0]

    assert [(await after(1, count * size)).offset for count in (1, 2, 4, 5, 100)] == [2, 3, 5, 6, 6]
    assert (await after(1, 1)).offset == 2
    assert (await after(6, 1)).offset == 6
    assert (await after(0, size)).leader_epoch is not None
    values = [record.value async for record in log.reader(name, start=await after(2, 2 * size), follow=False)]
    assert values == [b"4", b"5"]
    direct = log.reader(name, start=AfterBytes(Position(2), 2 * size), end=5)
    assert [record.value async for record in direct] == [b"4"]
    with pytest.raises(errors.OffsetOutOfRange):
        await after(7, 1)
    with pytest.raises(errors.InvalidRequest, match="bytes is 0"):
        await after(0, 0)


async def test_positions_say_what_starts_mean_now(log: Client, name: str) -> None:
    await log.create_stream(name, partitions=3)
    async with log.producer(name) as producer:
        for number in range(3):
            await producer.send(b"x", partition=number)

    found = await log.positions(name, {0: "earliest", 2: "latest"})

    assert {number: position.offset for number, position in found.items()} == {0: 0, 2: 1}
    with pytest.raises(errors.PartitionNotFound):
        await log.positions(name, {3: "latest"})
    with pytest.raises(errors.StreamNotFound):
        await log.positions(name, {0: "latest"}, stream_id=bytes(16))


async def test_a_reader_reads_the_records_between_two_times(log: Client, name: str) -> None:
    await shop(log, name)
    moment = datetime(1970, 1, 1, tzinfo=UTC)

    async def between(start: int, end: int, **options: Any) -> list[int]:
        reader = log.reader(
            name, start=moment + timedelta(seconds=start), end=moment + timedelta(seconds=end), **options
        )
        return [record.offset async for record in reader]

    assert await between(8, 23) == list(range(8, 23))
    assert await between(38, 99) == [38, 39]
    assert await between(8, 8) == await between(23, 8) == await between(98, 99) == []
    assert await between(3, 20, subject_filter="orders.>", follow=False) == [5, 10, 15]
    with pytest.raises(errors.InvalidRequest, match="time zone"):
        await anext(log.reader(name, end=datetime(2026, 1, 1)))  # noqa: DTZ001


# --- projections


async def shop(log: Client, name: str, compression: Any = "none", batches: int = 4) -> None:
    """Batches of ten records: record n has the key n % 3, and every fifth record is an order."""
    await log.create_stream(name)
    async with log.producer(name, compression=compression) as producer:
        for base in range(0, 10 * batches, 10):
            numbers = range(base, base + 10)
            await producer.send_batch(
                pa.table(
                    {
                        "key": [b"%d" % (n % 3) for n in numbers],
                        "value": [b"%d" % n * 100 for n in numbers],
                        "subject": [_subject(n) for n in numbers],
                        "timestamp": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
                    }
                )
            )


def _subject(number: int) -> str:
    return f"orders.{'eu' if number % 2 else 'us'}.{number}" if number % 5 == 0 else "carts"


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
async def test_only_columns_and_records_that_are_wanted_come(
    log: Client, name: str, compression: str
) -> None:
    await shop(log, name, compression)

    async def read(**wanted: Any) -> list[dict[str, Any]]:
        reader = log.reader(name, follow=False, **wanted)
        rows = [row async for batch in reader.batches(with_offsets=True) for row in batch.to_pylist()]
        assert reader.positions[0].offset == wanted.get("end", 40)
        assert reader.positions[0].leader_epoch is not None
        return rows

    assert await read(columns=["key"]) == [{"key": b"%d" % (n % 3), "offset": n} for n in range(40)]
    assert await read(columns=["offset"], keys=[b"1"], start=3, end=9) == [{"offset": 4}, {"offset": 7}]
    eu = await read(columns=["subject"], subject_filter="orders.eu.*")
    assert eu == [{"subject": _subject(n), "offset": n} for n in (5, 15, 25, 35)]
    assert [row["offset"] for row in await read(subject_filter=["orders.us.>", "orders.*.15"])] == [
        0, 10, 15, 20, 30,
    ]  # fmt: skip
    both = await read(subject_filter="orders.>", keys=[b"0"], start=1)
    assert [row["offset"] for row in both] == [15, 30]
    assert both[0]["value"] == b"15" * 100
    assert await read(subject_filter="nothing.at.all") == []
    assert await read(columns=["headers"], start=38) == [{"offset": 38}, {"offset": 39}]


async def test_filtered_records_come_one_by_one_with_their_offsets(log: Client, name: str) -> None:
    await shop(log, name)
    reader = log.reader(name, follow=False, subject_filter="orders.eu.*", start=6)

    found = [(record.offset, record.value, record.timestamp_us) async for record in reader]

    assert found == [(n, b"%d" % n * 100, n * 1_000_000) for n in (15, 25, 35)]
    assert reader.positions[0].offset == 40


async def test_a_position_behind_a_filtered_record_is_exact(log: Client, name: str) -> None:
    await shop(log, name)
    reader = log.reader(name, follow=False, keys=[b"0"])
    async for record in reader:
        if record.offset == 3:
            break
    assert reader.positions[0].offset == 4

    rest = log.reader(name, follow=False, keys=[b"0"], start=reader.positions[0])

    assert [record.offset async for record in rest] == [n for n in range(4, 40) if n % 3 == 0]
    mixed = [reader.positions[0].offset]
    async for batch in reader.fetched_batches():
        mixed += batch.offsets.to_pylist()
    assert mixed == [4, *(n for n in range(4, 40) if n % 3 == 0)]


async def test_a_following_reader_passes_records_that_do_not_match(log: Client, name: str) -> None:
    await shop(log, name)
    reader = log.reader(name, subject_filter="news")
    epoch = (await log.describe_stream(name)).partitions[0].leader_epoch
    waiting = asyncio.create_task(anext(reader))
    await until(lambda: reader.positions.get(0) == Position(40, epoch), "the reader passes all records")
    async with log.producer(name) as producer:
        await producer.send(b"old", subject="carts")
        await producer.send(b"new", subject="news")

    found = await waiting

    assert (found.offset, found.value) == (41, b"new")
    await reader.aclose()


async def test_some_columns_make_no_records(log: Client, name: str) -> None:
    await shop(log, name, batches=1)
    with pytest.raises(errors.InvalidRequest, match="only the columns key"):
        await anext(log.reader(name, columns=["key"]))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"columns": []}, "columns is empty"),
        ({"columns": "key"}, "sequence of names"),
        ({"columns": ["colour"]}, "a record has key, value"),
        ({"subject_filter": "a.>.b"}, "last token"),
        ({"subject_filter": [b"a"]}, "of type str"),
        ({"keys": b"k"}, "sequence of bytes"),
        ({"keys": ["k"]}, "of type bytes"),
    ],
)
async def test_a_wrong_projection_is_refused_at_once(
    log: Client, name: str, wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(errors.InvalidRequest, match=sentence):
        log.reader(name, **wrong)
