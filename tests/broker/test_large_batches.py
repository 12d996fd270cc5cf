"""Batches that decode to very much: written in order, read within the bound, and nobody waits for them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.api import Api, batch, code_of, record, start_of
from support.broker import BrokerProcess
from support.waiting import until_true
from tidelog.records import Compression
from tidelog_broker.limits.checks import INLINE_BYTES_MAX
from tidelog_proto import common_pb2, log_pb2

DECODED_BYTES_MAX = 32 << 20
BOMB_BYTES = 12 << 20


@pytest.fixture(scope="module")
def small_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It decodes little at a time."""
    flags = ("--fetch-decoded-bytes-max", str(DECODED_BYTES_MAX))
    with BrokerProcess(tmp_path_factory.mktemp("broker"), flags=flags) as process:
        yield process


@pytest_asyncio.fixture
async def small_api(small_broker: BrokerProcess) -> AsyncIterator[Api]:
    async with Api(small_broker.address) as client:
        yield client


def bomb(number: int = 0, size: int = BOMB_BYTES) -> bytes:
    return batch(b"%d" % number, bytes(size), compression=Compression.ZSTD)


def records_bomb(count: int = 400_000) -> bytes:
    return batch(*[b""] * count, compression=Compression.ZSTD)


async def number_of(broker: BrokerProcess, name: str) -> float:
    text = await asyncio.to_thread(broker.get, "/metrics")
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found, name
    return float(found[1])


async def until(broker: BrokerProcess, name: str, wanted: float) -> None:
    async def holds() -> bool:
        return await number_of(broker, name) == wanted

    await until_true(holds, f"{name} is {wanted:g}", 30)


async def filled(api: Api, *batches: bytes) -> common_pb2.StreamDescription:
    stream, call = await api.create(), api.produce()
    for data in batches:
        assert (await call.produce(stream, data)).HasField("receipt")
    return stream


# --- writing


async def test_batches_large_and_small_keep_their_order_on_a_call(api: Api) -> None:
    stream, call = await api.create(), api.produce()
    assert BOMB_BYTES > INLINE_BYTES_MAX
    sent = [bomb(number) if number % 3 else batch(b"%d" % number, b"") for number in range(12)]
    ids = [await call.send(stream, data) for data in sent]
    answers = [await call.answer() for _ in ids]
    assert [one.request_id for one in answers] == ids
    assert [one.receipt.base_offset for one in answers] == [2 * number for number in range(12)]
    found = await api.values(stream)
    assert found[::2] == [b"%d" % number for number in range(12)]


async def test_what_waits_behind_a_large_batch_is_refused_when_that_is_until_a_reset(api: Api) -> None:
    stream, call = await api.create(timestamp_ahead_ms_max=1000), api.produce()
    wrong = batch(
        bytes(BOMB_BYTES), compression=Compression.ZSTD, timestamp_us=int(time.time() * 1e6) + 10**9
    )
    for data, reset in ((wrong, False), (batch(b"a"), False), (bomb(), False), (batch(b"b"), True)):
        await call.send(stream, data, reset=reset)
    answers = [await call.answer() for _ in range(4)]
    assert [code_of(one.error) for one in answers[:3]] == [
        "INVALID_TIMESTAMP",
        "PRECEDING_FAILED",
        "PRECEDING_FAILED",
    ]
    assert answers[3].receipt.base_offset == 0
    assert await api.values(stream) == [b"b"]


async def test_very_many_small_batches_behind_a_large_one_are_all_answered(api: Api) -> None:
    stream, call = await api.create(), api.produce()
    await call.send(stream, bomb())
    small = batch(b"x")
    for _ in range(300):
        await call.send(stream, small, acks=common_pb2.ACKS_LEADER)
    offsets = [(await call.answer()).receipt.base_offset for _ in range(301)]
    assert offsets == [0, *range(2, 302)]


async def test_a_repeat_of_a_large_batch_of_a_producer_is_a_duplicate(api: Api) -> None:
    stream, call = await api.create(), api.produce()
    producer = (await api.log.InitProducer(log_pb2.InitProducerRequest())).producer_id
    data = batch(bytes(BOMB_BYTES), compression=Compression.ZSTD, producer_id=producer)
    for _ in range(2):
        await call.send(stream, data)
    first, second = await call.answer(), await call.answer()
    assert (first.receipt.duplicate, second.receipt.duplicate) == (False, True)
    assert first.receipt.base_offset == second.receipt.base_offset


# --- reading


async def test_large_records_and_very_many_records_are_read_whole(small_api: Api) -> None:
    stream = await filled(small_api, bomb(1, 6 << 20), records_bomb(), batch(b"end"))
    found = await small_api.read(stream)
    assert [one.offset for one in found] == list(range(2 + 400_000 + 1))
    assert [len(one.record.value) for one in found[:2]] == [1, 6 << 20]
    assert found[-1].record.value == b"end"


async def test_readers_beside_each_other_never_decode_more_than_the_bound(
    small_api: Api, small_broker: BrokerProcess
) -> None:
    stream = await filled(small_api, *(bomb(number, 7 << 20) for number in range(6)))
    seen, ended = [0.0], asyncio.Event()

    async def watch() -> None:
        while not ended.is_set():
            seen.append(await number_of(small_broker, "tidelog_decoded_bytes"))

    watching = asyncio.create_task(watch())

    async def read() -> list[int]:
        async with Api(small_broker.address) as own:
            return [len(value) for value in await own.values(stream)]

    found = await asyncio.gather(*(read() for _ in range(8)))
    ended.set()
    await watching
    assert found == [[1, 7 << 20] * 6] * 8
    assert 0 < max(seen) <= 1.5 * DECODED_BYTES_MAX
    await until(small_broker, "tidelog_decoded_bytes", 0)
    assert await number_of(small_broker, "tidelog_decode_waiting") == 0


async def test_a_batch_that_can_never_be_decoded_is_refused_by_the_name_of_the_limit(small_api: Api) -> None:
    stream = await filled(small_api, batch(b"before"), bomb(0, DECODED_BYTES_MAX))
    found, error = list[bytes](), common_pb2.Error()
    async for response in small_api.fetch(start_of(stream)):
        found += [one.record.value for one in response.records.records]
        if response.HasField("error"):
            error = response.error
    assert found == [b"before"]
    assert code_of(error) == "BATCH_TOO_LARGE"
    assert not error.retriable
    assert "fetch_decoded_bytes_max" in error.message
    assert "VERBATIM" in error.message
    # As it lies it can be read.
    sizes = [len(one.batches) async for one in small_api.fetch(start_of(stream), format=log_pb2.VERBATIM)]
    assert sum(sizes) > 0


async def test_a_record_too_large_for_an_answer_is_refused_by_the_name_of_the_limit(small_api: Api) -> None:
    stream = await filled(small_api, bomb(0, 12 << 20))
    kinds = [response async for response in small_api.fetch(start_of(stream))]
    assert code_of(kinds[-1].error) == "BATCH_TOO_LARGE"
    assert "fetch_decoded_bytes_max" in kinds[-1].error.message


@pytest.mark.long
async def test_readers_that_stop_reading_keep_nothing_decoded_and_go_on_where_they_were(
    small_api: Api, small_broker: BrokerProcess
) -> None:
    stream = await filled(small_api, *(records_bomb() for _ in range(3)))
    request = log_pb2.FetchRequest(partitions=[start_of(stream)], format=log_pb2.RECORDS)
    calls = [small_api.log.Fetch(request) for _ in range(20)]
    counts = [len((await call.read()).records.records) for call in calls]
    # Each of them could have 5 MB decoded, and three times as much to come.
    await until(small_broker, "tidelog_decoded_bytes", 0)
    assert await number_of(small_broker, "tidelog_fetch_calls") >= 20
    while not (response := await calls[0].read()).HasField("end"):
        counts[0] += len(response.records.records)
    assert counts[0] == 3 * 400_000
    for call in calls[1:]:
        call.cancel()
    await until(small_broker, "tidelog_fetch_calls", 0)


async def test_a_reader_that_leaves_a_large_record_unread_delays_no_other_reader(
    small_api: Api, small_broker: BrokerProcess
) -> None:
    large = await filled(small_api, *(batch(bytes(7 << 20), compression=Compression.ZSTD) for _ in range(8)))
    ordinary = await filled(small_api, batch(*[b"x" * 100] * 1000), records_bomb(100_000))
    request = log_pb2.FetchRequest(partitions=[start_of(large)], format=log_pb2.RECORDS)
    stalled = [Api(small_broker.address) for _ in range(3)]
    calls = [one.log.Fetch(request) for one in stalled]
    try:
        # One of them has its answer waiting, which is all that the client's end does not take.
        await until(small_broker, "tidelog_decode_waiting", 2)
        assert len(await small_api.read(ordinary)) == 101_000
        assert await number_of(small_broker, "tidelog_decode_waiting") == 2
    finally:
        for call in calls:
            call.cancel()
        for one in stalled:
            await one.channel.close()
    await until(small_broker, "tidelog_decoded_bytes", 0)


@pytest.mark.parametrize("moment", ["at once", "after an answer"])
async def test_calls_that_end_early_give_everything_back(
    small_api: Api, small_broker: BrokerProcess, moment: str
) -> None:
    stream = await filled(small_api, *(bomb(number, 7 << 20) for number in range(4)))
    for _ in range(5):
        request = log_pb2.FetchRequest(partitions=[start_of(stream)] * 3, format=log_pb2.RECORDS)
        calls = [small_api.log.Fetch(request) for _ in range(6)]
        if moment == "after an answer":
            await asyncio.gather(*(call.read() for call in calls))
        for call in calls:
            call.cancel()
    await until(small_broker, "tidelog_fetch_calls", 0)
    await until(small_broker, "tidelog_decoded_bytes", 0)
    assert await number_of(small_broker, "tidelog_decode_waiting") == 0
    assert len(await small_api.read(stream)) == 8


async def test_eight_readers_of_large_batches_cost_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    flags = ("--fetch-decoded-bytes-max", str(160 << 20))
    with BrokerProcess(tmp_path, flags=flags) as broker:
        async with Api(broker.address) as api:
            stream = await filled(api, *(batch(*[bytes(15 << 20)] * 2, compression=Compression.ZSTD),) * 6)
            before = _memory_bytes(broker)
            peak, reading = before, True

            async def watch() -> None:
                nonlocal peak
                while reading:
                    peak = max(peak, _memory_bytes(broker))
                    await asyncio.sleep(0.005)

            async def read() -> int:
                async with Api(broker.address) as own:
                    return sum([len(one.records.records) async for one in own.fetch(start_of(stream))])

            watching = asyncio.create_task(watch())
            assert await asyncio.gather(*(read() for _ in range(8))) == [12] * 8
            reading = False
            await watching
    # 160 MiB and half as much, and what is being freed just then.
    assert peak - before < 450 << 20


def _memory_bytes(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


async def test_small_requests_are_answered_while_large_batches_wait_to_be_checked(api: Api) -> None:
    stream, other, call = await api.create(), await api.create(), api.produce()
    for number in range(40):
        await call.send(stream, bomb(number))
    [receipt] = await api.publish(other, record(b"x"))
    assert receipt.offset == 0
    assert [(await call.answer()).receipt.base_offset for _ in range(40)] == [2 * n for n in range(40)]
