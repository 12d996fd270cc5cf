"""The plain records of one call, with the call and the log made up: room, heartbeats, ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tidelog.errors import BatchTooLarge, ResourceExhausted, Stopping
from tidelog.records import Columns, encode_batch, schema_of
from tidelog_broker.api import fetch_plain
from tidelog_broker.api.fetch_plain import PlainAnswers
from tidelog_broker.api.fetch_reading import Reading
from tidelog_broker.api.verbatim import EncodedAnswer
from tidelog_broker.limits import decoding as decoding_module
from tidelog_broker.limits.decoding import Decoding
from tidelog_broker.storage.segments.reading import Chunk
from tidelog_proto import log_pb2

VALUE_BYTES = 300_000
RECORD_BYTES_MAX = 1 << 20


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(autouse=True)
def taken_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_module, "IDLE_SECONDS_MIN", 0.0)


class FakeCall:
    """A log of one batch with three records, and a client whose heartbeats are due when the test says so."""

    def __init__(self, value_bytes: int = VALUE_BYTES) -> None:
        schema = schema_of(Columns.NONE)
        values = [bytes([number]) * value_bytes for number in range(3)]
        arrays = [pa.array(values, pa.binary()), pa.array([1, 2, 3], schema.field("timestamp").type)]
        self.data = encode_batch(pa.record_batch(arrays, schema=schema))
        self.reads = 0
        self.heartbeat_due = False

    async def read(self, reading: Reading, bytes_max: int) -> Chunk | None:
        self.reads += 1
        return Chunk([self.data], len(self.data), 3, 1, (0, len(self.data)))

    def facts(self, reading: Reading) -> bytes:
        return b""

    def seconds_until_heartbeat(self) -> float:
        return 0.0 if self.heartbeat_due else 3600.0

    def heartbeats(self) -> list[log_pb2.FetchResponse]:
        return [log_pb2.FetchResponse(heartbeat=log_pb2.Heartbeat())]


def reading_of_all() -> Reading:
    return Reading(
        0, cast(Any, SimpleNamespace(leader_epoch=1, high_watermark=3)), 0, None, 3, chunk_bytes=1 << 20
    )


def offsets(answer: log_pb2.FetchResponse | EncodedAnswer) -> list[int]:
    assert isinstance(answer, EncodedAnswer)
    return [
        one.offset for one in log_pb2.FetchResponse.FromString(answer.SerializeToString()).records.records
    ]


async def test_large_records_come_one_by_one_and_everything_is_given_back(
    threads: ThreadPoolExecutor,
) -> None:
    decoding, call, reading = (
        Decoding(threads, 4 << 20, record_bytes_max=RECORD_BYTES_MAX),
        FakeCall(),
        reading_of_all(),
    )
    answers = PlainAnswers(decoding, 1 << 20, call)
    found = []
    async for answer in answers.answers(reading):
        found.append(offsets(answer))
        assert decoding.large_answers.used >= VALUE_BYTES
    assert found == [[0], [1], [2]]
    assert (reading.offset, reading.epoch) == (3, 1)
    answers.close()
    assert decoding.bytes == 0


async def test_what_was_taken_back_while_the_client_was_slow_is_read_again_from_there(
    threads: ThreadPoolExecutor,
) -> None:
    decoding, call, reading = (
        Decoding(threads, 4 << 20, record_bytes_max=RECORD_BYTES_MAX),
        FakeCall(1000),
        reading_of_all(),
    )
    plain = PlainAnswers(decoding, 1500, call)
    found = []
    while reading.offset < 3:
        async for answer in plain.answers(reading):
            found += offsets(answer)
            # Somebody else needs all the room while the client takes its time.
            other = decoding.budget.request(decoding.budget.bytes_max)
            assert await other.granted(0)
            other.release()
    plain.close()
    assert found == [0, 1, 2]
    assert call.reads == 3
    assert decoding.bytes == 0


async def test_who_waits_for_room_has_heartbeats_and_holds_nothing(threads: ThreadPoolExecutor) -> None:
    decoding, call = Decoding(threads, 4 << 20, record_bytes_max=RECORD_BYTES_MAX), FakeCall()
    other = decoding.budget.request(decoding.budget.bytes_max)
    call.heartbeat_due = True
    plain = PlainAnswers(decoding, 1 << 20, call)
    answers = plain.answers(reading_of_all())
    first = await anext(answers)
    assert isinstance(first, log_pb2.FetchResponse)
    assert first.HasField("heartbeat")
    assert call.reads == 0
    # Its turn comes while the client has not taken the heartbeat: others go before it.
    other.release()
    assert await decoding.budget.request(decoding.budget.bytes_max).granted(0)
    await answers.aclose()
    assert decoding.budget.used == decoding.budget.bytes_max


async def test_a_reader_that_finds_no_room_for_a_large_record_is_told_so(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_plain, "LARGE_WAIT_SECONDS_MAX", 0.0)
    decoding, call = Decoding(threads, 4 << 20, record_bytes_max=RECORD_BYTES_MAX), FakeCall()
    decoding.large_answers.request(decoding.large_answers.bytes_max)
    plain = PlainAnswers(decoding, 1 << 20, call)
    with pytest.raises(ResourceExhausted, match="fetch_decoded_bytes_max") as refused:
        await anext(plain.answers(reading_of_all()))
    plain.close()
    assert refused.value.retriable
    assert decoding.budget.used == 0
    assert decoding.large_answers.used == decoding.large_answers.bytes_max
    assert decoding.waiting == 0


async def test_a_batch_or_record_that_never_fits_is_refused(threads: ThreadPoolExecutor) -> None:
    for bytes_max, what in ((500_000, "batch that needs"), (1_000_000, "record at offset 0")):
        decoding, plain = (
            (one := Decoding(threads, bytes_max, record_bytes_max=RECORD_BYTES_MAX)),
            PlainAnswers(one, 1 << 20, FakeCall()),
        )
        with pytest.raises(BatchTooLarge, match=what):
            await anext(plain.answers(reading_of_all()))
        plain.close()
        assert decoding.bytes == 0


async def test_a_record_that_is_too_large_for_any_answer_is_refused(threads: ThreadPoolExecutor) -> None:
    decoding = Decoding(threads, 4 << 20, record_bytes_max=VALUE_BYTES - 1)
    plain = PlainAnswers(decoding, 1 << 20, FakeCall())
    with pytest.raises(BatchTooLarge, match="message_bytes_max"):
        await anext(plain.answers(reading_of_all()))
    plain.close()
    assert decoding.bytes == 0


async def test_a_call_cancelled_during_decoding_releases_its_lease_after_the_thread(
    threads: ThreadPoolExecutor,
) -> None:
    decoding = Decoding(threads, 4 << 20, record_bytes_max=RECORD_BYTES_MAX)
    going, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(going.set)
        assert may_end.wait(10)

    async def call() -> None:
        lease = decoding.budget.request(1000)
        try:
            await decoding.run((lease,), work)
        finally:
            lease.release()

    task = asyncio.create_task(call())
    await going.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert decoding.bytes == 1000
    may_end.set()
    # What the thread sends to the event loop is there once a later job has answered.
    await loop.run_in_executor(threads, lambda: None)
    assert decoding.bytes == 0


async def test_at_a_stop_readers_hear_that_the_broker_stops() -> None:
    pool = ThreadPoolExecutor(1)
    decoding = Decoding(pool, 4 << 20, record_bytes_max=RECORD_BYTES_MAX)
    pool.shutdown()
    plain = PlainAnswers(decoding, 1 << 20, FakeCall())
    with pytest.raises(Stopping):
        await anext(plain.answers(reading_of_all()))
    assert decoding.bytes == 0
