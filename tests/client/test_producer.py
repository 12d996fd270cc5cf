"""The producer against a broker that fails on cue."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from support.fake_broker import Break, Fail, FakeBroker, FakeLog, Hold, Silence
from support.waiting import until
from tidelog import Client, ProducerOptions, RetryPolicy, errors
from tidelog.producer import Producer
from tidelog.records import BatchHeader, decode_batch

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=10)


def options(**changes: Any) -> ProducerOptions:
    return ProducerOptions(**{"retry": QUICK, "linger_ms": 1.0, **changes})


def values(log: FakeLog) -> list[bytes | None]:
    return [
        value
        for header, data in log.batches
        for value in decode_batch(data, header).column("value").to_pylist()
    ]


async def test_a_record_is_committed_when_send_returns(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s") as producer:
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        receipt = await producer.send(b"v", key=b"k", headers={"h": None}, subject="a.b", timestamp=moment)
        assert (receipt.partition, receipt.offset, receipt.duplicate) == (0, 0, False)
        await producer.send(None)
    header, data = stored.batches[0]
    [row] = decode_batch(data, header).to_pylist()
    assert (row["value"], row["key"], row["subject"]) == (b"v", b"k", "a.b")
    assert row["headers"] == [{"key": "h", "value": None}]
    assert row["timestamp"] == moment
    assert values(stored) == [b"v", None]


async def test_sends_of_one_moment_share_a_batch_and_know_their_offsets(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s") as producer:
        receipts = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(100)))
    assert [receipt.offset for receipt in receipts] == list(range(100))
    assert len(stored.batches) == 1


async def test_buffered_records_arrive_in_order_by_flush(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    sent = [b"%d" % number for number in range(5000)]
    async with log.producer("s", options=options(batch_bytes=8192)) as producer:
        for value in sent:
            producer.send_nowait(value)
        await producer.flush()
        assert values(stored) == sent
        assert len(stored.batches) > 5
    assert all(len(data) <= 8192 for _, data in stored.batches)


async def test_a_lingering_batch_goes_by_itself(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s") as producer:
        producer.send_nowait(b"v")
        await until(lambda: stored.batches, "the batch lingered and went")


async def test_keys_choose_partitions_and_records_without_one_stick_to_a_batch(
    log: Client, broker: FakeBroker
) -> None:
    logs = broker.add_stream("s", partitions=4)
    async with log.producer("s") as producer:
        for number in range(200):
            producer.send_nowait(b"%d" % number, key=b"key-%d" % (number % 10))
        await producer.flush()
        for number in range(10):
            key = b"key-%d" % number
            receipt = await producer.send(b"last", key=key)
            stored = values(logs[receipt.partition])
            own = [
                value
                for value in stored
                if value is not None and value.isdigit() and int(value) % 10 == number
            ]
            assert own == [b"%d" % n for n in range(number, 200, 10)]
        partitions = {(await producer.send(b"v")).partition for _ in range(8)}
    assert partitions == {0, 1, 2, 3}


async def test_records_with_and_without_a_key_share_a_partition_in_order(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    keys = [None, b"a", b"", None, None, b"b", b"c"]
    async with log.producer("s") as producer:
        for number, key in enumerate(keys):
            producer.send_nowait(b"%d" % number, key=key)
    rows = [row for header, data in stored.batches for row in decode_batch(data, header).to_pylist()]
    assert [(row["key"], int(row["value"])) for row in rows] == [(key, n) for n, key in enumerate(keys)]


async def test_arrow_tables_go_in_slices_by_key_and_come_with_receipts(
    log: Client, broker: FakeBroker
) -> None:
    logs = broker.add_stream("s", partitions=3)
    rows = 20_000
    table = pa.table(
        {
            "key": pa.array([b"%d" % (number % 7) for number in range(rows)], pa.binary()),
            "value": pa.array([b"%d" % number for number in range(rows)], pa.binary()),
        }
    )
    async with log.producer("s", options=options(batch_bytes=32 << 10)) as producer:
        receipts = await producer.send_batch(table)
    assert sum(receipt.last_offset - receipt.offset + 1 for receipt in receipts) == rows
    assert len(receipts) > 10
    found = [int(value or 0) for stored in logs for value in values(stored)]
    assert sorted(found) == list(range(rows))
    for stored in logs:
        by_key: dict[int, list[int]] = {}
        for value in values(stored):
            by_key.setdefault(int(value or 0) % 7, []).append(int(value or 0))
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
async def test_compressed_batches_are_smaller_and_the_same(
    log: Client, broker: FakeBroker, compression: Any
) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s", compression=compression) as producer:
        await producer.send_batch(pa.table({"value": [b"x" * 1000] * 100}))
    assert values(stored) == [b"x" * 1000] * 100
    assert len(stored.batches[0][1]) < 20_000


async def test_a_full_buffer_refuses_send_nowait_and_makes_send_wait(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s")
    go_on = asyncio.Event()
    broker.script.extend([Hold(go_on)])
    async with log.producer("s", options=options(buffer_bytes_max=64 << 10)) as producer:

        def fill() -> None:
            for _ in range(100):
                producer.send_nowait(bytes(1000))

        with pytest.raises(errors.ResourceExhausted, match="buffer_bytes_max") as caught:
            fill()
        assert caught.value.definite
        waiting = asyncio.create_task(producer.send(bytes(1000)))
        draining = asyncio.create_task(producer.drain())
        await until(lambda: broker.produced, "the first batch arrived")
        assert not waiting.done()
        assert not draining.done()
        go_on.set()
        await draining
        assert (await waiting).offset > 0


async def test_no_more_than_the_window_is_unanswered(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s")
    broker.window = 2
    go_on = asyncio.Event()
    broker.script.append(Hold(go_on))
    async with log.producer("s", options=options(batch_bytes=4096)) as producer:
        producer.send_nowait(b"first")
        await until(lambda: broker.produced, "the first batch arrived")
        for _ in range(100):
            producer.send_nowait(bytes(1000))
        window = producer._sender.queue(0).window
        assert window.inflight <= 2
        go_on.set()
        await producer.flush()


async def test_a_retriable_error_is_repeated_in_order_with_reset(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    broker.script.append(Fail(errors.NotEnoughReplicas("too few")))
    sent = [b"%d" % number for number in range(50)]
    async with log.producer("s", options=options(batch_bytes=4096)) as producer:
        for value in sent:
            producer.send_nowait(value + bytes(500))
        await producer.flush()
    assert [bytes(value or b"").rstrip(b"\0") for value in values(stored)] == sent
    assert [request.reset for request in broker.produced].count(True) == 1


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("fault", [Break, Silence, "error"])
async def test_an_indefinite_failure_never_loses_or_doubles_a_record(
    log: Client, broker: FakeBroker, landed: bool, fault: Any
) -> None:
    [stored] = broker.add_stream("s")
    step = Fail(errors.TimedOut("late"), landed) if fault == "error" else fault(landed)
    broker.script.append(step)
    chosen = options(request_timeout_s=0.1, batch_bytes=4096)
    async with log.producer("s", options=chosen) as producer:
        receipts = asyncio.gather(*(producer.send(b"%d" % n + bytes(1500)) for n in range(6)))
        found = await asyncio.wait_for(receipts, 10)
    assert [receipt.offset for receipt in found] == list(range(6))
    assert [int(bytes(value or b"").rstrip(b"\0")) for value in values(stored)] == list(range(6))
    assert found[0].duplicate == landed


async def test_without_idempotence_a_broken_connection_is_reported_and_nothing_doubled(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    broker.script.append(Break(landed=True))
    async with log.producer("s", idempotent=False) as producer:
        with pytest.raises(errors.ConnectionLost):
            await producer.send(b"v")
        assert (await producer.send(b"w")).offset == 1
    assert values(stored) == [b"v", b"w"]
    assert "InitProducer" not in broker.calls


async def test_an_unknown_producer_starts_again_under_a_new_id(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s", options=options()) as producer:
        await producer.send(b"a")
        stored.producers.clear()
        assert (await producer.send(b"b")).offset == 1
    ids = [BatchHeader.unpack(data).producer_id for _, data in stored.batches]
    assert len(set(ids)) == 2


async def test_an_unknown_producer_after_a_lost_answer_is_an_indefinite_failure(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s", options=options()) as producer:
        await producer.send(b"a")
        broker.script.append(Silence(landed=True))
        sending = asyncio.create_task(producer.send(b"b"))
        await until(lambda: len(stored.batches) == 2, "the batch landed")
        stored.producers.clear()
        await broker.stop()
        await broker.start()
        with pytest.raises(errors.IndefiniteError) as caught:
            await sending
        assert isinstance(caught.value.__cause__, errors.UnknownProducer)
        assert (await producer.send(b"c")).offset == 2
    assert values(stored) == [b"a", b"b", b"c"]


async def test_a_fenced_producer_fails_and_takes_nothing_more(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s")
    producer = log.producer("s", options=options())
    await producer.start()
    broker.script.append(Fail(errors.FencedProducer("a newer one writes")))
    with pytest.raises(errors.FencedProducer):
        await producer.send(b"v")
    with pytest.raises(errors.FencedProducer):
        producer.send_nowait(b"w")
    await producer.close()


async def test_what_send_nowait_lost_is_raised_by_flush_with_the_count(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    broker.script.append(Fail(errors.InvalidTimestamp("in the future")))
    async with log.producer("s", options=options()) as producer:
        for _ in range(3):
            producer.send_nowait(b"v")
        with pytest.raises(errors.InvalidTimestamp, match="3 records") as caught:
            await producer.flush()
        assert caught.value.details["records_lost"] == "3"
        await producer.flush()
        assert (await producer.send(b"w")).offset == 0
    assert values(stored) == [b"w"]


async def test_close_raises_what_was_lost(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s")
    broker.script.append(Fail(errors.CorruptBatch("no")))
    producer = log.producer("s")
    await producer.start()
    producer.send_nowait(b"v")
    with pytest.raises(errors.CorruptBatch):
        await producer.close()


async def test_the_error_of_the_body_wins_over_lost_records(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s")
    broker.script.append(Fail(errors.CorruptBatch("no")))

    async def body() -> None:
        async with log.producer("s") as producer:
            producer.send_nowait(b"v")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        await body()
    assert "lost records" in caught.value.__notes__[0]


async def test_a_moved_leader_is_followed(log: Client, broker: FakeBroker) -> None:
    async with FakeBroker(1) as second:
        broker.peers = second.peers = [broker, second]
        [stored] = broker.add_stream("s")
        async with log.producer("s", options=options()) as producer:
            await producer.send(b"a")
            broker.lead("s", 0, 1)
            assert (await producer.send(b"b")).offset == 1
        assert second.calls["Produce"] == 1
        assert values(stored) == [b"a", b"b"]


async def test_a_broker_that_restarts_gets_what_is_left(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s", options=options()) as producer:
        await producer.send(b"a")
        await broker.stop()
        sending = asyncio.create_task(producer.send(b"b"))
        await until(lambda: producer._sender.queue(0).recovering, "it tries to get there")
        await broker.start()
        assert (await sending).offset == 1
    assert values(stored) == [b"a", b"b"]


async def test_while_nothing_can_go_batches_grow_instead_of_piling_up(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s", options=options()) as producer:
        await producer.send(b"first")
        broker.lead("s", 0, None)
        sent = []
        for number in range(50):
            sent.append(asyncio.create_task(producer.send(b"%d" % number)))
            await asyncio.sleep(0)
            queue = producer._sender.queue(0)
            await until(lambda it=queue: it.open is None or it.ripe, "it has lingered")  # type: ignore[misc]
        broker.lead("s", 0, 0)
        await asyncio.gather(*sent)
    assert len(stored.batches) < 20
    assert values(stored)[1:] == [b"%d" % number for number in range(50)]


async def test_the_delivery_timeout_ends_the_waiting_definitely_if_nothing_was_sent(
    log: Client, broker: FakeBroker
) -> None:
    broker.add_stream("s")
    async with log.producer("s", options=options(delivery_timeout_s=0.2)) as producer:
        broker.lead("s", 0, None)
        with pytest.raises(errors.TidelogError) as caught:
            await producer.send(b"v")
        assert caught.value.definite
        assert "delivery timeout" in str(caught.value)


async def test_the_delivery_timeout_is_indefinite_while_a_batch_is_unanswered(
    log: Client, broker: FakeBroker
) -> None:
    broker.add_stream("s")
    broker.script.append(Silence(landed=True))
    async with log.producer("s", options=options(delivery_timeout_s=0.2)) as producer:
        with pytest.raises(errors.TimedOut) as caught:
            await producer.send(b"v")
        assert not caught.value.definite


async def test_a_stream_that_was_created_anew_is_not_taken_for_the_old_one(
    log: Client, broker: FakeBroker
) -> None:
    broker.add_stream("s")
    async with log.producer("s", options=options()) as producer:
        await producer.send(b"a")
        broker.logs.clear()
        [stored] = broker.add_stream("s")
        with pytest.raises(errors.StreamNotFound):
            await producer.send(b"b")
    assert stored.batches == []


async def test_a_conditional_append_goes_alone_and_fails_definitely_elsewhere(
    log: Client, broker: FakeBroker
) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s", options=options()) as producer:
        producer.send_nowait(b"a")
        assert (await producer.send(b"b", expected_offset=1)).offset == 1
        with pytest.raises(errors.UnexpectedOffset) as caught:
            await producer.send(b"c", expected_offset=1)
        assert caught.value.definite
        assert (await producer.send(b"d")).offset == 2
    assert [header.record_count for header, _ in stored.batches] == [1, 1, 1]


async def test_a_record_that_fits_into_no_batch_is_refused_at_once(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s", batch_bytes_max=8192)
    async with log.producer("s") as producer:
        with pytest.raises(errors.BatchTooLarge, match="8192"):
            producer.send_nowait(bytes(9000))
        with pytest.raises(errors.BatchTooLarge):
            await producer.send_batch(pa.table({"value": [bytes(9000)]}))
    assert broker.produced == []


@pytest.mark.parametrize(
    "record",
    [
        {"value": "text"},
        {"value": 5},
        {"value": b"v", "key": "k"},
        {"value": b"v", "headers": {"h": "text"}},
        {"value": b"v", "subject": b"s"},
        {"value": b"v", "timestamp": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
)
async def test_values_of_the_wrong_type_are_refused_and_harm_no_other_record(
    log: Client, broker: FakeBroker, record: dict[str, Any]
) -> None:
    [stored] = broker.add_stream("s")
    async with log.producer("s") as producer:
        producer.send_nowait(b"before")
        with pytest.raises(errors.InvalidRequest):
            producer.send_nowait(**record)
        producer.send_nowait(b"after")
    assert values(stored) == [b"before", b"after"]


async def test_a_wrong_partition_and_a_closed_producer_say_so(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s", partitions=2)
    producer: Producer
    async with log.producer("s") as producer:
        with pytest.raises(errors.PartitionNotFound, match="0–1"):
            await producer.send(b"v", partition=2)
    with pytest.raises(errors.InvalidRequest, match="closed"):
        producer.send_nowait(b"v")


async def test_a_cancelled_send_leaves_the_producer_whole(log: Client, broker: FakeBroker) -> None:
    [stored] = broker.add_stream("s")
    go_on = asyncio.Event()
    broker.script.append(Hold(go_on))
    async with log.producer("s") as producer:
        sending = asyncio.create_task(producer.send(b"a"))
        await until(lambda: broker.produced, "it was sent")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        go_on.set()
        assert (await producer.send(b"b")).offset == 1
    assert values(stored) == [b"a", b"b"]


async def test_buffer_memory_is_all_given_back(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s", partitions=3)
    async with log.producer("s", options=options(batch_bytes=4096)) as producer:

        def send() -> None:
            for number in range(300):
                producer.send_nowait(bytes(100), key=b"%d" % number)

        broker.script.extend([None, Fail(errors.NotEnoughReplicas("few")), Fail(errors.CorruptBatch("no"))])
        send()
        with pytest.raises(errors.CorruptBatch):
            await producer.flush()
        # Only now: the end of a call may overtake an answer that is on its way.
        broker.script.extend([None, Break(True)])
        send()
        await producer.flush()
        assert producer._budget.used == 0


async def test_a_record_larger_than_the_buffer_is_refused_instead_of_waited_for(
    log: Client, broker: FakeBroker
) -> None:
    broker.add_stream("s")
    async with log.producer("s", options=options(buffer_bytes_max=64 << 10)) as producer:
        with pytest.raises(errors.BatchTooLarge, match="buffer_bytes_max"):
            await asyncio.wait_for(producer.send(bytes(64 << 10)), 5)
        with pytest.raises(errors.BatchTooLarge, match="buffer_bytes_max"):
            await asyncio.wait_for(producer.send(bytes(64 << 10), expected_offset=0), 5)
        await producer.send(b"fits")


async def test_a_conditional_send_to_a_wrong_partition_keeps_nothing_of_the_buffer(
    log: Client, broker: FakeBroker
) -> None:
    broker.add_stream("s", partitions=2)
    async with log.producer("s") as producer:
        with pytest.raises(errors.PartitionNotFound):
            await producer.send(b"x", partition=2, expected_offset=0)
        assert producer._budget.used == 0


async def test_a_stream_that_is_not_there_is_reported_by_name(log: Client) -> None:
    with pytest.raises(errors.StreamNotFound, match="nope"):
        async with log.producer("nope"):
            pass
