"""Fetch `projected`, as a client in any language sees it: what is sent, what is refused, what it may cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from broker.test_large_batches import number_of, until
from support import waiting
from support.api import Api, batch, code_of, record, refusal, start_of
from support.broker import BrokerProcess
from tidelog.records import Columns, Compression, encode_batch, schema_of
from tidelog.records.projected import (
    PROJECTED_HEADER_BYTES,
    ProjectedHeader,
    decode_projected,
    split_projected,
)
from tidelog.records.projecting import Projector
from tidelog_broker.api.fetch_projected import CHUNK_BYTES_MAX, WORK_BYTES, Answers, ProjectedAnswers
from tidelog_broker.api.fetch_reading import Reading
from tidelog_broker.api.verbatim import EncodedAnswer
from tidelog_broker.limits import projections as projections_module
from tidelog_broker.limits.answer_room import AnswerRoom, Held
from tidelog_broker.limits.projections import Projections
from tidelog_broker.storage.segments.reading import Chunk
from tidelog_proto import common_pb2, log_pb2

DECODED_BYTES_MAX = 8 << 20


@pytest.fixture(scope="module")
def small_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It filters little at a time."""
    flags = ("--fetch-decoded-bytes-max", str(DECODED_BYTES_MAX), "--projection-threads", "1")
    with BrokerProcess(tmp_path_factory.mktemp("broker"), flags=flags) as process:
        yield process


@pytest_asyncio.fixture
async def small_api(small_broker: BrokerProcess) -> AsyncIterator[Api]:
    async with Api(small_broker.address) as client:
        yield client


def keyed(count: int, value_bytes: int, compression: Compression = Compression.ZSTD) -> bytes:
    """A batch of records with the keys 0, 1, …, and values that compress well."""
    schema = schema_of(Columns.KEY)
    columns = [[b"%d" % n for n in range(count)], [bytes(value_bytes)] * count, list(range(count))]
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    return encode_batch(pa.record_batch(arrays, schema=schema), compression=compression)


async def filled(api: Api, *batches: bytes) -> common_pb2.StreamDescription:
    stream, call = await api.create(), api.produce()
    for data in batches:
        answer = await call.produce(stream, data)
        assert answer.HasField("receipt"), answer
    return stream


async def answers(api: Api, partition: log_pb2.FetchPartition, **wanted: Any) -> list[log_pb2.FetchResponse]:
    projection = log_pb2.Projection(**wanted)
    return [one async for one in api.fetch(partition, format=log_pb2.PROJECTED, projection=projection)]


def batches_of(
    stream: common_pb2.StreamDescription, responses: list[log_pb2.FetchResponse]
) -> list[tuple[ProjectedHeader, pa.RecordBatch | None]]:
    found: list[tuple[ProjectedHeader, pa.RecordBatch | None]] = []
    for response in responses:
        for header, body in split_projected(response.projected, stream.stream_id, 0):
            found.append((header, decode_projected(header, body) if header.record_count else None))
    return found


def offsets(stream: common_pb2.StreamDescription, responses: list[log_pb2.FetchResponse]) -> list[int]:
    return [
        offset
        for _, columns in batches_of(stream, responses)
        if columns is not None
        for offset in columns["offset"].to_pylist()
    ]


# --- what is sent


async def test_projected_batches_cover_every_offset_once_and_say_where_to_continue(api: Api) -> None:
    stream = await api.create()
    for number in range(12):
        await api.publish(stream, record(b"v", subject="a" if number in (3, 4, 8) else "b"))

    responses = await answers(
        api, start_of(stream, position=log_pb2.Position(offset=1)), subject_filter=["a"]
    )

    found = batches_of(stream, responses)
    spans = [(header.start_offset, header.next_offset) for header, _ in found]
    assert spans == [(1, 4), (4, 5), (5, 9), (9, 12)]
    assert offsets(stream, responses) == [3, 4, 8]
    epoch = stream.partitions[0].leader_epoch
    assert {header.leader_epoch for header, _ in found} == {epoch}
    assert responses[-1].WhichOneof("item") == "end"
    assert responses[-1].next == log_pb2.Position(offset=12, leader_epoch=epoch)
    sent = [one for one in responses if one.projected]
    assert [one.next.offset for one in sent][-1] == 12


async def test_a_log_without_a_match_costs_one_small_answer(api: Api) -> None:
    stream = await filled(api, *[batch(bytes(100_000), b"x") for _ in range(40)])

    responses = await answers(api, start_of(stream), keys=[b"k"])

    nothing, end = responses
    assert len(nothing.projected) == PROJECTED_HEADER_BYTES
    ((header, _),) = batches_of(stream, responses)
    assert (header.start_offset, header.next_offset, header.record_count) == (0, 80, 0)
    assert end.WhichOneof("item") == "end"


async def test_a_range_ends_inside_a_batch(api: Api) -> None:
    stream = await filled(api, keyed(10, 5, Compression.NONE), keyed(10, 5, Compression.LZ4))
    wanted = start_of(stream, position=log_pb2.Position(offset=7))
    wanted.end_offset = 13

    responses = await answers(api, wanted, columns=["key"])

    assert offsets(stream, responses) == list(range(7, 13))
    assert responses[-1].next.offset == 13


async def test_the_copy_of_one_broker_can_be_filtered_too(api: Api) -> None:
    stream = await filled(api, keyed(10, 5))
    projection = log_pb2.Projection(keys=[b"3"])
    call = api.fetch(start_of(stream), format=log_pb2.PROJECTED, projection=projection, own_replica=True)

    assert offsets(stream, [one async for one in call]) == [3]


# --- what is refused


@pytest.mark.parametrize(
    ("projection", "sentence"),
    [
        ({}, "the projection is empty"),
        ({"columns": ["colour"]}, "a record has key, value, headers, subject, timestamp, offset"),
        ({"columns": ["key"] * 2}, "each column once"),
        ({"columns": ["key"] * 1000}, "each column once"),
        ({"subject_filter": ["a.>.b"]}, "only allowed as the last token"),
        ({"subject_filter": ["*x"]}, "whole tokens"),
        ({"subject_filter": ["a"] * 65}, "at most 64"),
        ({"subject_filter": ["x" * 1025]}, "more than 1024 bytes"),
        ({"keys": [b"k"] * 1001}, "at most 1000"),
        ({"keys": [bytes(70_000)]}, "at most 65536"),
    ],
)
async def test_a_wrong_projection_is_refused_with_a_sentence(
    api: Api, projection: dict[str, Any], sentence: str
) -> None:
    stream = await api.create()
    request = log_pb2.FetchRequest(
        partitions=[start_of(stream)],
        format=log_pb2.PROJECTED,
        projection=log_pb2.Projection(**projection),
    )

    refused = await refusal(api.log.Fetch(request).read())

    assert refused.code == "INVALID_REQUEST"
    assert sentence in refused.message


async def test_a_projection_needs_its_format_and_the_format_is_known(api: Api) -> None:
    stream = await api.create()
    for fields in (
        {"projection": log_pb2.Projection(columns=["key"])},
        {"format": 3},
        {"format": log_pb2.PROJECTED},
    ):
        request = log_pb2.FetchRequest(partitions=[start_of(stream)], **fields)
        assert (await refusal(api.log.Fetch(request).read())).code == "INVALID_REQUEST"


# --- what it may cost


async def test_a_batch_that_decodes_to_too_much_is_refused_only_if_it_must_be_decoded(
    small_api: Api, small_broker: BrokerProcess
) -> None:
    stream = await filled(small_api, keyed(60, 1 << 20))

    (refused,) = await answers(small_api, start_of(stream), keys=[b"7"])
    assert code_of(refused.error) == "BATCH_TOO_LARGE"
    assert "VERBATIM" in refused.error.message
    assert offsets(stream, await answers(small_api, start_of(stream), keys=[b"7"], columns=["key"])) == [7]
    whole = await answers(small_api, start_of(stream), columns=["value"])
    assert offsets(stream, whole) == list(range(60))
    assert sum(len(one.projected) for one in whole) < 1 << 20
    assert await number_of(small_broker, "tidelog_projection_bytes") == 0


async def test_very_many_large_batches_are_filtered_beside_producers(
    small_api: Api, small_broker: BrokerProcess
) -> None:
    stream = await filled(small_api, *[keyed(20, 100_000) for _ in range(30)])
    other, produce = await small_api.create(), small_api.produce()
    readers = [asyncio.create_task(answers(small_api, start_of(stream), keys=[b"7"])) for _ in range(20)]
    acknowledged = 0
    while not all(reader.done() for reader in readers):
        assert (await produce.produce(other, batch(b"x"))).HasField("receipt")
        acknowledged += 1

    expected = list(range(7, 600, 20))
    assert [offsets(stream, reader.result()) for reader in readers] == [expected] * 20
    assert acknowledged
    assert await number_of(small_broker, "tidelog_projection_bytes") == 0


async def test_readers_that_stop_reading_or_leave_hold_no_memory_for_filtering(
    small_api: Api, small_broker: BrokerProcess
) -> None:
    stream = await filled(small_api, *[keyed(100, 10_000, Compression.NONE) for _ in range(12)])
    request = log_pb2.FetchRequest(
        partitions=[start_of(stream)] * 3,
        format=log_pb2.PROJECTED,
        projection=log_pb2.Projection(keys=[b"%d" % n for n in range(50)]),
    )
    stalled = [small_api.log.Fetch(request) for _ in range(20)]
    await asyncio.gather(*(call.read() for call in stalled))
    await until(small_broker, "tidelog_projection_bytes", 0)
    assert len(offsets(stream, await answers(small_api, start_of(stream), keys=[b"1"]))) == 12
    for call in stalled:
        call.cancel()
    await until(small_broker, "tidelog_fetch_calls", 0)
    await until(small_broker, "tidelog_answer_bytes", 0)
    assert await number_of(small_broker, "tidelog_projection_waiting") == 0


async def test_a_large_batch_is_sent_whole_whatever_an_answer_may_have(api: Api) -> None:
    stream = await filled(api, keyed(9, 100_000, Compression.NONE))
    call = api.fetch(
        start_of(stream),
        format=log_pb2.PROJECTED,
        projection=log_pb2.Projection(columns=["value"]),
        response_bytes_max=1,
    )

    responses = [one async for one in call]

    assert offsets(stream, responses) == list(range(9))


class FakeCall:
    """A log of one batch, and a client whose heartbeats are always due."""

    def __init__(self, next_offset: int = 3) -> None:
        """`next_offset`: of a chunk; behind 3: the batch is not all of the chunk."""
        self.data = keyed(3, 10)
        self.next_offset = next_offset
        self.asked: list[int] = []

    async def read(self, reading: Reading, bytes_max: int) -> Chunk | None:
        self.asked.append(bytes_max)
        return Chunk([self.data], len(self.data), self.next_offset, 1, (0, len(self.data)))

    def read_ahead(self, reading: Reading) -> None: ...

    def facts(self, reading: Reading) -> bytes:
        return b""

    def response(self, reading: Reading, **item: object) -> log_pb2.FetchResponse:
        return log_pb2.FetchResponse(**item)  # type: ignore[arg-type]

    def seconds_until_heartbeat(self) -> float:
        return 0.0

    def heartbeats(self) -> list[log_pb2.FetchResponse]:
        return [log_pb2.FetchResponse(heartbeat=log_pb2.Heartbeat())]

    async def until_granted(self, room: Held, reading: Reading) -> AsyncGenerator[log_pb2.FetchResponse]:
        raise AssertionError("no answer is large")
        yield


def fake_partition() -> Any:
    return SimpleNamespace(stream_id=bytes(16), partition=0, leader_epoch=1, high_watermark=3)


def answers_of(projections: Projections, index: int) -> Answers:
    """The answers of a call of its own."""
    partition = fake_partition()
    projector, room = Projector(["key"], [], []), AnswerRoom(64 << 20)
    made = ProjectedAnswers(projector, projections, room, "c", FakeCall(), bytes_max=1 << 20)
    return made.answers(Reading(index, partition, 0, None, 3, chunk_bytes=1 << 20))


async def first_answer(responses: Answers) -> EncodedAnswer:
    async for response in responses:
        if isinstance(response, EncodedAnswer):
            return response
    raise AssertionError("there was no answer")


@pytest.mark.parametrize(
    ("bytes_max", "next_offset", "asked"),
    [
        # Little is sent: a few bytes of a mebibyte.
        (1 << 20, 3, [1 << 20, 2 << 20, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX]),
        # Much is sent, as much as an answer may have.
        (1024, 3, [1024] * 4),
        # The rest of the chunk must be read again.
        (1 << 20, 6, [1 << 20] * 4),
    ],
)
async def test_more_is_read_at_a_time_while_little_of_it_is_sent(
    bytes_max: int, next_offset: int, asked: list[int]
) -> None:
    call = FakeCall(next_offset)
    reading = Reading(0, fake_partition(), 0, None, 3, chunk_bytes=bytes_max)
    with ThreadPoolExecutor(1) as threads:
        made = ProjectedAnswers(
            Projector(["key"], [], []), Projections(threads, 64 << 20), AnswerRoom(64 << 20), "c", call,
            bytes_max=bytes_max,
        )  # fmt: skip
        for _ in range(4):
            reading.offset = 0
            async for _ in made.answers(reading):
                pass

    assert call.asked == asked


async def test_a_client_that_takes_no_heartbeats_keeps_no_memory_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(projections_module, "IDLE_SECONDS_MIN", 0.0)
    may_go = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        projections = Projections(threads, WORK_BYTES)
        threads.submit(may_go.wait)
        stalled, reads = (answers_of(projections, n) for n in range(2))
        assert isinstance(await anext(stalled), log_pb2.FetchResponse)

        reading = asyncio.create_task(first_answer(reads))
        await waiting.until(lambda: projections.budget.used and not projections.budget.waiting, "memory")
        may_go.set()

        assert (await reading).bytes_to_send
        await stalled.aclose()
        await waiting.until(lambda: not projections.budget.used, "the memory is given back")


async def test_readers_wait_for_the_threads_with_heartbeats_and_may_leave_meanwhile() -> None:
    may_go = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        projections = Projections(threads, 64 << 20)
        threads.submit(may_go.wait)
        waits, leaves = (answers_of(projections, n) for n in range(2))
        for one in (waits, leaves, waits, leaves):
            assert isinstance(await anext(one), log_pb2.FetchResponse)
        assert projections.budget.used
        await leaves.aclose()
        may_go.set()

        assert (await first_answer(waits)).bytes_to_send
        await waits.aclose()
        await waiting.until(lambda: not projections.budget.used, "the memory is given back")
