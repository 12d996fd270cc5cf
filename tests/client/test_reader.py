"""The reader: where it begins and ends, what it refuses, how it goes on."""

import asyncio
import gc
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from support.fake_broker import FakeBroker, FakeLog
from support.waiting import until
from tidelog import Client, Position, ReaderOptions, RetryPolicy, errors
from tidelog._connecting.framing import FetchAnswer
from tidelog._producing.batching import OpenBatch
from tidelog._reading.fetching import FetchState
from tidelog.records import BatchHeader, encode_batch, stamp, to_columns
from tidelog.records.projected import column_attributes, pack_projected, projected_schema
from tidelog_proto import common_pb2, log_pb2

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=10)


def options(**changes: Any) -> ReaderOptions:
    return ReaderOptions(**{"retry": QUICK, "heartbeat_ms": 20, **changes})


def put(log: FakeLog, *sizes: int, first_us: int = 0) -> None:
    """Batches of so many records each; the value of a record is its offset."""
    for size in sizes:
        base = log.end
        batch = OpenBatch()
        for offset in range(base, base + size):
            batch.append(b"%d" % offset, (first_us + offset) * 1000, b"k", (("h", b"x"),), "a.b", 0)
        log.append(encode_batch(batch.columns()))


async def offsets_of(reader: Any) -> list[int]:
    return [record.offset async for record in reader]


async def test_records_arrive_whole_and_in_order(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 3, 1, 4)
    records = [record async for record in log.reader("s", follow=False)]
    assert [record.offset for record in records] == list(range(8))
    assert [record.value for record in records] == [b"%d" % offset for offset in range(8)]
    first = records[0]
    assert (first.key, first.headers, first.subject) == (b"k", (("h", b"x"),), "a.b")
    assert (first.stream, first.partition, first.leader_epoch) == ("s", 0, 1)


async def test_a_reader_that_could_not_begin_can_be_asked_again(log: Client, broker: FakeBroker) -> None:
    reader = log.reader("later", follow=False)
    with pytest.raises(errors.StreamNotFound):
        await anext(reader)
    [stored] = broker.add_stream("later")
    put(stored, 1)
    assert (await asyncio.wait_for(anext(reader), 5)).offset == 0


async def test_absent_columns_are_none_for_every_record(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    stored.append(encode_batch(to_columns(pa.record_batch({"value": [b"a", None] * 5}), now_us=1)))
    records = [record async for record in log.reader("s", follow=False)]
    assert len(records) == 10
    assert {(record.key, record.headers, record.subject) for record in records} == {(None, (), None)}


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", None, range(2, 10)),
        ("earliest", "latest", range(2, 10)),
        (4, None, range(4, 10)),
        (4, 6, range(4, 6)),
        (Position(5, 1), 9, range(5, 9)),
        ("latest", None, range(0)),
        (7, 7, range(0)),
        (3, 100, range(3, 10)),
    ],
)
async def test_it_begins_and_ends_where_it_is_told(
    log: Client, broker: FakeBroker, start: Any, end: Any, expected: range
) -> None:
    [stored] = broker.add_stream("s")
    stored.start = 2
    put(stored, 3, 3, 2)
    assert await offsets_of(log.reader("s", start=start, end=end, follow=False)) == list(expected)


async def test_it_begins_at_a_time(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    put(stored, 2, 2, first_us=int(moment.timestamp()) * 1_000_000)
    found = await offsets_of(log.reader("s", start=moment + timedelta(microseconds=2), follow=False))
    assert found == [2, 3]


async def test_following_waits_for_new_records_and_ends_at_its_end(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 1)
    reading = asyncio.create_task(offsets_of(log.reader("s", end=3, options=options())))
    await until(lambda: broker.fetches, "it reads")
    put(stored, 1)
    put(stored, 5)
    assert await reading == [0, 1, 2]


async def test_some_partitions_with_a_start_each(log: Client, broker: FakeBroker) -> None:
    logs = broker.add_stream("s", partitions=3)
    for stored in logs:
        put(stored, 4)
    reader = log.reader("s", start={0: 1, 2: 3}, partitions=[0, 2], follow=False)
    found = sorted([(record.partition, record.offset) async for record in reader])
    assert found == [(0, 1), (0, 2), (0, 3), (2, 3)]
    assert reader.positions == {0: Position(4, 1), 2: Position(4, 1)}


async def test_batches_are_arrow_without_a_copy_and_with_offsets_if_asked(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 3, 4)
    plain = [batch async for batch in log.reader("s", start=1, end=6).batches()]
    assert [batch.num_rows for batch in plain] == [2, 3]
    assert plain[0].schema.names == ["key", "value", "headers", "subject", "timestamp"]
    numbered = [batch async for batch in log.reader("s", start=1, end=6).batches(with_offsets=True)]
    assert [batch.column("offset").to_pylist() for batch in numbered] == [[1, 2], [3, 4, 5]]
    fetched = [batch async for batch in log.reader("s", start=1, end=6).fetched_batches()]
    assert [(batch.partition, batch.base_offset, batch.next_offset) for batch in fetched] == [
        (0, 1, 3),
        (0, 3, 6),
    ]


async def test_positions_are_the_consumers_and_mixing_records_with_batches_loses_nothing(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 5, 5)
    async with log.reader("s", follow=False) as reader:
        assert reader.positions == {}
        assert [(await anext(reader)).offset for _ in range(2)] == [0, 1]
        assert reader.positions == {0: Position(2, 1)}
        rest = await reader.next_batch()
        assert rest is not None
        assert rest.offsets.to_pylist() == [2, 3, 4]
        assert reader.positions == {0: Position(5, 1)}
        assert await offsets_of(reader) == [5, 6, 7, 8, 9]
        assert reader.positions == {0: Position(10, 1)}


async def test_a_broken_connection_is_resumed_with_position_and_epoch(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 2, 2, 2)
    broker.fetch_script.extend([None, ConnectionError(), None, ConnectionError()])
    reader = log.reader("s", end=6, options=options())
    assert await offsets_of(reader) == list(range(6))
    positions = [fetch.partitions[0].position for fetch in broker.fetches]
    assert [position.offset for position in positions] == [0, 2, 4]
    assert positions[1].leader_epoch == 1


async def test_a_retriable_error_of_one_partition_leaves_the_others_reading(
    log: Client, broker: FakeBroker
) -> None:
    logs = broker.add_stream("s", partitions=3)
    for stored in logs:
        put(stored, 4)

    def not_leader(answer: log_pb2.FetchResponse) -> log_pb2.FetchResponse:
        error = log_pb2.FetchResponse(index=answer.index)
        error.error.code = common_pb2.NOT_LEADER
        error.error.retriable = error.error.definite = True
        return error

    broker.fetch_script.append(not_leader)
    reader = log.reader("s", end={0: 4, 1: 4, 2: 4}, options=options())
    found = sorted([(record.partition, record.offset) async for record in reader])
    assert found == [(partition, offset) for partition in range(3) for offset in range(4)]


async def test_partitions_of_several_leaders_are_read_from_each(log: Client, broker: FakeBroker) -> None:
    async with FakeBroker(1) as second:
        broker.peers = second.peers = [broker, second]
        logs = broker.add_stream("s", partitions=2)
        broker.lead("s", 1, 1)
        for stored in logs:
            put(stored, 3)
        reader = log.reader("s", end={0: 3, 1: 3}, options=options())
        assert sorted([(record.partition, record.offset) async for record in reader]) == [
            (partition, offset) for partition in range(2) for offset in range(3)
        ]
        assert (broker.calls["Fetch"], second.calls["Fetch"]) == (1, 1)


@pytest.mark.parametrize(
    ("policy", "first"), [("error", None), ("rewind", 4), ("earliest", 4), ("latest", 6)]
)
async def test_a_position_below_the_log_start_follows_the_policy(
    log: Client, broker: FakeBroker, policy: Any, first: int | None
) -> None:
    [stored] = broker.add_stream("s")
    stored.start = 4
    put(stored, 2)
    reader = log.reader("s", start=1, end=8, options=options(on_truncated=policy))
    if first is None:
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            await anext(reader)
        assert caught.value.details["log_start_offset"] == "4"
        return
    reading = asyncio.create_task(offsets_of(reader))
    await until(lambda: len(broker.fetches) > 1, "it reads on elsewhere")
    put(stored, 2)
    assert await reading == list(range(first, 8))


@pytest.mark.parametrize(("policy", "expected"), [("error", None), ("rewind", [2, 3, 4])])
async def test_a_truncated_log_is_reread_from_the_divergence_only_if_told_so(
    log: Client, broker: FakeBroker, policy: Any, expected: list[int] | None
) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 5)

    def truncated(answer: log_pb2.FetchResponse) -> log_pb2.FetchResponse:
        error = log_pb2.FetchResponse(index=answer.index)
        error.error.code = common_pb2.LOG_TRUNCATED
        error.error.details.update({"divergence_offset": "2", "divergence_epoch": "1"})
        return error

    broker.fetch_script.append(truncated)
    reader = log.reader("s", start=Position(4, 1), end=5, options=options(on_truncated=policy))
    if expected is None:
        with pytest.raises(errors.LogTruncated):
            await anext(reader)
    else:
        assert await offsets_of(reader) == expected


async def test_a_flipped_byte_is_refused_and_never_returned(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 2, 2)
    header, data = stored.batches[1]
    rng = random.Random(5)
    for place in [8, 16, 24, 28, 33, 40, *rng.choices(range(80, len(data)), k=5)]:
        bad = bytearray(data)
        bad[place] ^= 1
        stored.batches[1] = (header, bytes(bad))
        reader = log.reader("s", end=4, options=options())
        assert [(await anext(reader)).offset for _ in range(2)] == [0, 1]
        with pytest.raises((errors.DataCorrupt, errors.CorruptBatch)):
            await anext(reader)
        await reader.aclose()


async def test_a_missing_stream_and_a_missing_partition_are_named(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s", partitions=2)
    with pytest.raises(errors.StreamNotFound, match="nope"):
        await anext(log.reader("nope"))
    with pytest.raises(errors.PartitionNotFound, match="0–1"):
        await anext(log.reader("s", partitions=[5]))


@pytest.mark.parametrize("start", ["soon", -1, 1.5, datetime(2026, 1, 1)])  # noqa: DTZ001
async def test_a_start_that_means_nothing_is_refused(log: Client, broker: FakeBroker, start: Any) -> None:
    broker.add_stream("s")
    with pytest.raises(errors.InvalidRequest):
        await anext(log.reader("s", start=start))


async def test_another_stream_of_the_same_name_is_not_read_with_old_positions(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 3)
    reader = log.reader("s", start=1, end=3, stream_id=bytes(16))
    with pytest.raises(errors.StreamNotFound, match="deleted"):
        await anext(reader)
    assert await offsets_of(log.reader("s", start=1, end=3, stream_id=stored.stream_id)) == [1, 2]


async def test_a_silent_broker_is_given_up_after_a_while(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s")
    silent = options(heartbeat_ms=60_000, silence_timeout_s=0.05, retry_timeout_s=0.2)
    with pytest.raises(errors.ConnectionLost, match="sent nothing"):
        await anext(log.reader("s", options=silent))


async def test_a_slow_consumer_bounds_what_is_fetched_ahead(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    put(stored, *[1] * 200)
    reader = log.reader("s", end=200, options=options(answers_ahead_max=2))
    await anext(reader)
    await until(lambda: reader._calls.arrived.full(), "it read ahead")
    assert reader._calls.arrived.qsize() == 2
    assert len(await offsets_of(reader)) == 199


async def test_closing_ends_the_calls_and_the_reading(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 1)
    async with log.reader("s") as reader:
        await anext(reader)
    assert not reader._calls.running
    with pytest.raises(errors.InvalidRequest, match="closed"):
        await anext(reader)


async def test_closing_the_client_ends_the_calls_of_a_reader_that_was_dropped(broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    put(stored, 1)
    async with tidelog.connect(broker.address) as log:
        reader = log.reader("s")
        await anext(reader)
        running = reader._calls.running
        assert running
        del reader
        gc.collect()
    assert not running


# --- FetchState alone: gaps, epochs, compaction


STREAM_ID = bytes(range(16))


def stamped(base: int, rows: int, epoch: int = 1) -> bytes:
    batch = encode_batch(to_columns(pa.record_batch({"value": [b"v"] * rows}), now_us=1))
    head = stamp(
        batch, stream_id=STREAM_ID, partition=0, base_offset=base, append_time_us=1, leader_epoch=epoch
    )
    return head + batch[80:]


def compacted(base: int, deltas: list[int], last_delta: int) -> bytes:
    """A batch as compaction leaves it."""
    plain = to_columns(pa.record_batch({"value": [b"%d" % (base + delta) for delta in deltas]}), now_us=1)
    columns = plain.append_column(
        pa.field("offset_delta", pa.uint32(), nullable=False), pa.array(deltas, pa.uint32())
    )
    made = encode_batch(columns, flags=1 << 5)
    header = BatchHeader.unpack(made)._replace(last_offset_delta=last_delta)
    from tidelog.records.checksum import crc32c

    body = header.pack()[36:] + made[80:]
    header = header._replace(body_crc=crc32c(body))
    unstamped = header.pack() + made[80:]
    head = stamp(
        unstamped, stream_id=STREAM_ID, partition=0, base_offset=base, append_time_us=1, leader_epoch=1
    )
    return head + unstamped[80:]


def read(start: int, end: int | None, *answers: bytes) -> list[int]:
    state = FetchState("s", STREAM_ID, 0, Position(start), end)
    state.request()
    found: list[int] = []
    for data in answers:
        for batch in state.accept(FetchAnswer(log_pb2.FetchResponse(), data)):
            found += batch.offsets.to_pylist()
    return found


def test_batches_that_follow_each_other_are_read() -> None:
    assert read(1, 6, stamped(0, 3) + stamped(3, 2), stamped(5, 4)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: read(0, None, stamped(0, 3), stamped(4, 2)),
        lambda: read(0, None, stamped(0, 3), stamped(2, 2)),
        lambda: read(0, None, stamped(0, 3), stamped(0, 3)),
        lambda: read(5, None, stamped(6, 1)),
        lambda: read(5, None, stamped(0, 5)),
        lambda: read(0, None, stamped(0, 1, epoch=2), stamped(1, 1, epoch=1)),
    ],
)
def test_gaps_repeats_and_epochs_that_go_back_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(errors.DataCorrupt):
        make()


def test_a_compacted_batch_may_have_gaps_and_may_stand_behind_one() -> None:
    data = compacted(2, [0, 3, 7], 9)
    assert read(0, None, stamped(0, 1) + data, stamped(12, 1)) == [0, 2, 5, 9, 12]
    assert read(3, None, data) == [5, 9]
    assert read(3, 9, data) == [5]
    assert read(10, None, data, stamped(12, 1)) == [12]


def test_a_compacted_batchs_records_have_their_own_offsets() -> None:
    state = FetchState("s", STREAM_ID, 0, Position(5), None)
    state.request()
    [batch] = state.accept(FetchAnswer(log_pb2.FetchResponse(), compacted(2, [0, 3, 7], 9)))
    assert [(record.offset, record.value) for record in batch.records()] == [(5, b"5"), (9, b"9")]
    assert [record.offset for record in batch.after(5).records()] == [9]
    assert "offset_delta" not in batch.columns.schema.names


def projected(start: int, end: int, offsets: list[int], *, epoch: int = 1, partition: int = 0) -> bytes:
    """A projected batch about the offsets from `start` to `end`, of which it has some."""
    schema = projected_schema(("value",))
    values = [b"%d" % offset for offset in offsets]
    message = b""
    if offsets:
        message = pa.record_batch([values, offsets], schema=schema).serialize().to_pybytes()
    facts = {"attributes": column_attributes(["value"]), "record_count": len(offsets)} if offsets else {}
    head = pack_projected(
        STREAM_ID, partition, [message], start_offset=start, next_offset=end, leader_epoch=epoch, **facts
    )
    return head + message


def read_projected(start: int, end: int | None, *answers: bytes) -> tuple[list[int], Position]:
    state = FetchState("s", STREAM_ID, 0, Position(start), end)
    found: list[int] = []
    for data in answers:
        for batch in state.accept(FetchAnswer(log_pb2.FetchResponse(), b"", data)):
            found += batch.offsets.to_pylist() if batch.columns.num_rows else []
    return found, state.position


def test_projected_batches_that_follow_each_other_are_read() -> None:
    answers = projected(2, 6, [3, 5]) + projected(6, 9, [], epoch=2), projected(9, 12, [9, 10, 11], epoch=2)

    assert read_projected(2, 12, *answers) == ([3, 5, 9, 10, 11], Position(12, 2))


@pytest.mark.parametrize(
    "answers",
    [
        [projected(0, 3, [1]), projected(4, 5, [4])],
        [projected(0, 3, [1]), projected(2, 5, [4])],
        [projected(1, 3, [1])],
        [projected(0, 3, [3])],
        [projected(0, 3, []), projected(3, 9, [2])],
        [projected(0, 9, [1])],
        [projected(0, 2, [1], epoch=2), projected(2, 3, [], epoch=1)],
        [projected(0, 3, [1], partition=1)],
    ],
)
def test_projected_batches_that_do_not_fit_are_refused(answers: list[bytes]) -> None:
    with pytest.raises(errors.DataCorrupt):
        read_projected(0, 8, *answers)


@pytest.mark.parametrize("place", [5, 9, 17, 25, 29, 34, 37, 44, 60, -1])
def test_a_flipped_byte_of_a_projected_batch_is_refused(place: int) -> None:
    bad = bytearray(projected(0, 3, [1]))
    bad[place] ^= 1

    with pytest.raises((errors.DataCorrupt, errors.CorruptBatch)):
        read_projected(0, None, bytes(bad))
