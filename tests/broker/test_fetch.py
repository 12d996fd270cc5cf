"""Fetch: from any start, to an end or for ever, one partition or many, as batches or as plain records."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.api import Api, batch, code_of, record, refusal, start_of
from support.broker import BrokerProcess
from support.waiting import until_true
from tidelog.records import Compression, decode_batch, split_batches, verify_batch
from tidelog_proto import admin_pb2, common_pb2, log_pb2


async def _collect(responses: AsyncIterator[log_pb2.FetchResponse]) -> tuple[list[bytes], list[str]]:
    """All values, and the kind of each last item."""
    values: list[bytes] = []
    ends: list[str] = []
    async for response in responses:
        kind = str(response.WhichOneof("item"))
        values += [one.record.value for one in response.records.records]
        if kind in ("end", "error"):
            ends.append(kind if kind == "end" else code_of(response.error))
    return values, ends


async def _fill(api: Api, count: int = 10, **config: Any) -> common_pb2.StreamDescription:
    stream = await api.create(**config)
    for number in range(count):
        await api.publish(stream, b"%d" % number, partition=0)
    return stream


def _numbers(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def test_from_the_earliest_record_to_the_end_of_the_log(api: Api) -> None:
    stream = await _fill(api)
    assert await _collect(api.fetch(start_of(stream))) == (_numbers(*range(10)), ["end"])


async def test_an_empty_log_ends_at_once(api: Api) -> None:
    stream = await api.create()
    assert await _collect(api.fetch(start_of(stream))) == ([], ["end"])
    assert await _collect(api.fetch(start_of(stream, latest=True))) == ([], ["end"])


async def test_from_an_offset_to_an_offset_even_inside_batches(api: Api) -> None:
    stream = await api.create()
    await api.publish(stream, *_numbers(*range(10)))
    part = start_of(stream, position=log_pb2.Position(offset=3), end_offset=6)
    assert await _collect(api.fetch(part)) == (_numbers(3, 4, 5), ["end"])


async def test_from_a_time_on(api: Api) -> None:
    stream = await api.create()
    for second in range(5):
        await api.publish(stream, record(b"%d" % second, timestamp_us=second * 1_000_000))
    part = start_of(stream, timestamp_us=2_500_000)
    assert await _collect(api.fetch(part)) == (_numbers(3, 4), ["end"])
    assert await _collect(api.fetch(start_of(stream, timestamp_us=99_000_000))) == ([], ["end"])


async def test_next_says_where_to_go_on(api: Api) -> None:
    stream = await _fill(api)
    part = start_of(stream, end_offset=4)
    last = [response async for response in api.fetch(part)][-1]
    assert last.next.offset == 4
    assert last.next.leader_epoch == stream.partitions[0].leader_epoch
    assert (last.log_start_offset, last.high_watermark, last.log_end_offset) == (0, 10, 10)
    rest = await _collect(api.fetch(start_of(stream, position=last.next)))
    assert rest == (_numbers(*range(4, 10)), ["end"])


async def test_a_following_reader_gets_what_is_written_later(api: Api) -> None:
    stream = await _fill(api, 2)
    call = api.fetch(start_of(stream), follow=True)
    got: list[bytes] = []
    async for response in call:
        got += [one.record.value for one in response.records.records]
        if len(got) < 6:
            await api.publish(stream, b"%d" % len(got))
        else:
            break
    assert got == _numbers(*range(6))


async def test_following_to_an_end_waits_for_it_and_ends(api: Api) -> None:
    stream = await api.create()
    reading = asyncio.create_task(_collect(api.fetch(start_of(stream, end_offset=3), follow=True)))
    for number in range(5):
        await api.publish(stream, b"%d" % number)
    assert await asyncio.wait_for(reading, 10) == (_numbers(0, 1, 2), ["end"])


async def test_following_from_the_latest_skips_what_was_there(api: Api) -> None:
    stream = await _fill(api, 3)
    call = api.fetch(start_of(stream, latest=True), follow=True, heartbeat_ms=50)
    got: list[bytes] = []
    async for response in call:
        got += [one.record.value for one in response.records.records]
        if got:
            break
        await api.publish(stream, b"new")
    assert set(got) == {b"new"}


async def test_a_stopping_reader_beside_a_busy_writer_ends_once(api: Api) -> None:
    stream = await _fill(api, 50)
    stop = asyncio.Event()

    async def write() -> None:
        while not stop.is_set():
            await api.publish(stream, b"more")

    writing = asyncio.create_task(write())
    begin = 0
    for _ in range(50):
        part = start_of(stream, position=log_pb2.Position(offset=begin))
        responses = [one async for one in api.fetch(part, response_bytes_max=600)]
        assert [one.WhichOneof("item") for one in responses].count("end") == 1
        assert responses[-1].HasField("end")
        begin = max(begin, responses[-1].next.offset - 5)
    stop.set()
    await writing


async def test_several_partitions_of_several_streams_in_one_call(api: Api) -> None:
    one, two = await api.create(partitions=2), await _fill(api, 3)
    await api.publish(one, b"p0", partition=0)
    await api.publish(one, b"p1", partition=1)
    found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    ended = []
    async for response in api.fetch(start_of(one, 0), start_of(one, 1), start_of(two)):
        found[response.index] += [r.record.value for r in response.records.records]
        if response.HasField("end"):
            ended.append(response.index)
    assert found == {0: [b"p0"], 1: [b"p1"], 2: _numbers(0, 1, 2)}
    assert sorted(ended) == [0, 1, 2]


async def test_the_same_partition_twice_in_one_call_is_read_twice(api: Api) -> None:
    stream = await _fill(api, 4)
    found: dict[int, list[bytes]] = {0: [], 1: []}
    late = start_of(stream, position=log_pb2.Position(offset=2))
    async for response in api.fetch(start_of(stream), late):
        found[response.index] += [r.record.value for r in response.records.records]
    assert found == {0: _numbers(0, 1, 2, 3), 1: _numbers(2, 3)}


async def test_what_goes_wrong_with_one_partition_ends_that_one_alone(api: Api) -> None:
    stream = await _fill(api, 3)
    unknown = log_pb2.FetchPartition(stream_id=bytes(16), earliest=True)
    beyond = start_of(stream, position=log_pb2.Position(offset=99))
    missing = start_of(stream, 8)
    found: dict[int, str] = {}
    values: list[bytes] = []
    async for response in api.fetch(unknown, beyond, start_of(stream), missing):
        values += [r.record.value for r in response.records.records]
        if response.HasField("error"):
            found[response.index] = code_of(response.error)
        elif response.HasField("end"):
            found[response.index] = "end"
    assert found == {0: "STREAM_NOT_FOUND", 1: "OFFSET_OUT_OF_RANGE", 2: "end", 3: "PARTITION_NOT_FOUND"}
    assert values == _numbers(0, 1, 2)


async def test_a_range_error_names_both_ends(api: Api) -> None:
    stream = await _fill(api, 5)
    await api.log.DeleteRecords(log_pb2.DeleteRecordsRequest(stream_id=stream.stream_id, before_offset=2))
    async for response in api.fetch(start_of(stream, position=log_pb2.Position(offset=1))):
        assert code_of(response.error) == "OFFSET_OUT_OF_RANGE"
        assert response.error.details["log_start_offset"] == "2"
        assert response.error.details["log_end_offset"] == "5"


async def test_a_position_of_another_history_is_answered_with_the_divergence(
    api: Api,
) -> None:
    stream = await _fill(api, 5)
    epoch = stream.partitions[0].leader_epoch
    ahead = start_of(stream, position=log_pb2.Position(offset=3, leader_epoch=epoch + 5))
    async for response in api.fetch(ahead):
        assert code_of(response.error) == "LOG_TRUNCATED"
        assert "divergence_offset" in response.error.details
    fits = start_of(stream, position=log_pb2.Position(offset=3, leader_epoch=epoch))
    assert (await _collect(api.fetch(fits)))[0] == _numbers(3, 4)


async def test_a_position_from_before_a_restart_still_fits(own_broker: BrokerProcess) -> None:
    async with Api(own_broker.address) as api:
        stream = await _fill(api, 3)
        last = [r async for r in api.fetch(start_of(stream))][-1]
    own_broker.kill()
    own_broker.start()
    async with Api(own_broker.address) as api:
        await api.publish(stream, b"after")
        (found,) = await api.read(stream, position=last.next)
        assert found.record.value == b"after"
        assert found.leader_epoch > last.next.leader_epoch
        stale = start_of(stream, position=log_pb2.Position(offset=4, leader_epoch=last.next.leader_epoch))
        assert await _collect(api.fetch(stale)) == ([], ["LOG_TRUNCATED"])


async def test_verbatim_answers_are_whole_batches_that_check(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    for number in range(5):
        await call.produce(stream, batch(b"%d" % number, b"x"))
    data = b""
    part = start_of(stream, position=log_pb2.Position(offset=3), end_offset=6)
    async for response in api.fetch(part, format=log_pb2.VERBATIM):
        data += response.batches
    bases = []
    for header, body in split_batches(data):
        verify_batch(body, header, stream.stream_id, 0)
        bases.append(header.base_offset)
        assert decode_batch(body, header).num_rows == 2
    assert bases == [2, 4]


async def test_answers_keep_to_their_size_and_a_larger_batch_still_comes_whole(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    for _ in range(6):
        await call.produce(stream, batch(bytes(3000)))
    await call.produce(stream, batch(bytes(100_000)))
    sizes = [
        len(response.batches)
        async for response in api.fetch(start_of(stream), format=log_pb2.VERBATIM, response_bytes_max=8000)
        if response.batches
    ]
    assert max(sizes[:-1]) <= 8000
    assert sizes[-1] > 100_000


async def test_a_small_batch_of_very_many_records_comes_in_bounded_answers(api: Api) -> None:
    stream = await api.create()
    values = [b"the same thing again"] * 200_000
    await api.produce().produce(stream, batch(*values, compression=Compression.ZSTD))
    count = 0
    async for response in api.fetch(start_of(stream), response_bytes_max=1 << 20):
        assert response.ByteSize() < 3 << 20
        count += len(response.records.records)
        assert response.next.offset == count
    assert count == len(values)


async def test_heartbeats_tell_where_an_idle_log_stands(api: Api) -> None:
    stream = await _fill(api, 3)
    async for response in api.fetch(start_of(stream, latest=True), follow=True, heartbeat_ms=50):
        assert response.HasField("heartbeat")
        assert (response.high_watermark, response.next.offset) == (3, 3)
        break


async def test_an_idle_partition_has_heartbeats_though_another_of_the_call_is_busy(api: Api) -> None:
    idle, busy = await api.create(), await api.create()
    stop = asyncio.Event()

    async def write() -> None:
        while not stop.is_set():
            await api.publish(busy, b"x")

    writing = asyncio.create_task(write())
    async for response in api.fetch(start_of(idle), start_of(busy), follow=True, heartbeat_ms=50):
        if response.index == 0:
            assert response.HasField("heartbeat")
            break
    stop.set()
    await writing


async def test_a_deleted_stream_ends_its_followers(api: Api) -> None:
    stream = await _fill(api, 1)
    following = aiter(api.fetch(start_of(stream), follow=True))
    await anext(following)
    await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name=stream.name))
    _, ends = await asyncio.wait_for(_collect(following), 10)
    assert ends == ["STREAM_NOT_FOUND"]


@pytest.mark.parametrize(
    "request_",
    [
        log_pb2.FetchRequest(),
        log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition()] * 1001),
        log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition()], format=9),  # type: ignore[arg-type]
    ],
    ids=["no partition", "too many", "format"],
)
async def test_a_call_that_can_never_be_right_is_refused(api: Api, request_: log_pb2.FetchRequest) -> None:
    assert (await refusal(api.log.Fetch(request_).read())).code == "INVALID_REQUEST"


async def test_readers_that_cancel_leave_nothing_behind(api: Api, broker: BrokerProcess) -> None:
    stream = await _fill(api, 3)
    for _ in range(30):
        call = api.log.Fetch(log_pb2.FetchRequest(partitions=[start_of(stream)], follow=True))
        await call.read()
        call.cancel()

    async def none_is_left() -> bool:
        return "tidelog_fetch_calls 0.0" in await asyncio.to_thread(broker.get, "/metrics")

    await until_true(none_is_left, "no call is left")


async def test_a_reader_that_does_not_read_costs_a_bounded_amount_of_memory(
    api: Api, broker: BrokerProcess
) -> None:
    stream = await api.create(durability=common_pb2.PAGE_CACHE)
    producer = api.produce()
    for _ in range(150):
        await producer.produce(stream, batch(bytes(1_000_000)))
    before = _memory_bytes(broker)
    calls = [
        api.log.Fetch(log_pb2.FetchRequest(partitions=[start_of(stream)], follow=True)) for _ in range(12)
    ]
    for call in calls:
        assert (await call.read()).batches
    # The broker has filled whatever it would fill when for a while it hands no answer on.
    peak, handed_on, quiet_polls = before, "", 0
    deadline = time.monotonic() + 30
    while quiet_polls < 10:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
        peak = max(peak, _memory_bytes(broker))
        earlier, handed_on = handed_on, await asyncio.to_thread(_fetched_bytes, broker)
        quiet_polls = quiet_polls + 1 if handed_on == earlier else 0
    # Some 50 MB, more when other tests keep the machine busy; all that there is for each of them is 1,800 MB.
    assert peak - before < 200 << 20
    rest = 0
    while rest < 149:
        rest += len(list(split_batches((await calls[0].read()).batches)))
    for call in calls:
        call.cancel()


def _fetched_bytes(broker: BrokerProcess) -> str:
    """What its metrics say of bytes sent to readers."""
    lines = broker.get("/metrics").splitlines()
    found = [line for line in lines if line.startswith("tidelog_fetched_bytes_total")]
    assert found
    return "\n".join(found)


def _memory_bytes(broker: BrokerProcess) -> int:
    with open(f"/proc/{broker.pid}/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024
