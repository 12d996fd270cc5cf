"""Produce: batches in, receipts out, in order; errors, order after errors, idempotence, conditions."""

import asyncio
import time
from pathlib import Path

import grpc
import grpc.aio
import pytest

from support.api import Api, batch, code_of, refusal, start_of
from support.broker import BrokerProcess
from tidelog.records import Compression
from tidelog_proto import admin_pb2, common_pb2, log_pb2

MINUTE_US = 60_000_000


async def _producer(api: Api) -> int:
    response: log_pb2.InitProducerResponse = await api.log.InitProducer(log_pb2.InitProducerRequest())
    return response.producer_id


async def test_receipts_come_in_order_and_without_gaps(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    for number in range(200):
        await call.send(stream, batch(b"%d" % number, b"x"))
    answers = [await call.answer() for _ in range(200)]
    assert [answer.request_id for answer in answers] == list(range(1, 201))
    assert [(a.receipt.base_offset, a.receipt.last_offset) for a in answers] == [
        (2 * n, 2 * n + 1) for n in range(200)
    ]
    assert (await api.values(stream))[::2] == [b"%d" % n for n in range(200)]


async def test_a_receipt_tells_epoch_and_append_time(api: Api) -> None:
    stream = await api.create()
    before = time.time() * 1e6
    receipt = (await api.produce().produce(stream, batch(b"x"))).receipt
    assert receipt.leader_epoch == stream.partitions[0].leader_epoch
    assert before - 1e6 <= receipt.append_time_us <= time.time() * 1e6 + 1e6
    assert not receipt.duplicate


async def test_partitions_of_one_call_do_not_wait_for_each_other(api: Api) -> None:
    stream = await api.create(partitions=3)
    call = api.produce()
    for number in range(30):
        await call.send(stream, batch(b"%d" % number), partition=number % 3)
    answers = [await call.answer() for _ in range(30)]
    for partition in range(3):
        mine = [a.receipt.base_offset for a in answers if (a.request_id - 1) % 3 == partition]
        assert mine == list(range(10))


@pytest.mark.parametrize("compression", list(Compression))
async def test_compressed_batches_are_kept_as_they_came(api: Api, compression: Compression) -> None:
    stream = await api.create()
    call = api.produce()
    assert (await call.produce(stream, batch(*[b"tide" * 50] * 20, compression=compression))).HasField(
        "receipt"
    )
    assert await api.values(stream) == [b"tide" * 50] * 20


@pytest.mark.parametrize("acks", [0, 1, 2])
async def test_every_kind_of_acknowledgement_is_answered(api: Api, acks: int) -> None:
    stream = await api.create()
    response = await api.produce().produce(stream, batch(b"x"), acks=acks)
    assert response.receipt.last_offset == 0


async def test_after_an_error_later_batches_are_refused_until_a_reset(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    good = batch(b"x")
    await call.send(stream, good)
    await call.send(stream, good[:-8] + bytes(8))
    await call.send(stream, good)
    await call.send(stream, good)
    await call.send(stream, good, reset=True)
    await call.send(stream, good)
    answers = [await call.answer() for _ in range(6)]
    told = [code_of(a.error) if a.HasField("error") else a.receipt.base_offset for a in answers]
    assert told == [0, "CORRUPT_BATCH", "PRECEDING_FAILED", "PRECEDING_FAILED", 1, 2]
    assert answers[2].error.retriable
    assert answers[2].error.definite


async def test_an_error_met_in_the_log_refuses_what_was_pipelined_behind_it(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    await call.send(stream, batch(b"a"), expected_offset=7)
    for _ in range(5):
        await call.send(stream, batch(b"b"))
    answers = [await call.answer() for _ in range(6)]
    assert [code_of(a.error) for a in answers] == ["UNEXPECTED_OFFSET"] + ["PRECEDING_FAILED"] * 5
    assert answers[0].error.details["log_end_offset"] == "0"
    assert await api.values(stream) == []


async def test_an_error_in_one_partition_leaves_the_others_alone(api: Api) -> None:
    stream = await api.create(partitions=2)
    call = api.produce()
    await call.send(stream, b"rubbish", partition=0)
    await call.send(stream, batch(b"x"), partition=1)
    answers = {a.request_id: a for a in [await call.answer(), await call.answer()]}
    assert answers[1].HasField("error")
    assert answers[2].HasField("receipt")


async def test_a_reset_on_a_healthy_call_does_no_harm(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    assert [(await call.produce(stream, batch(b"x"), reset=True)).receipt.base_offset for _ in range(3)] == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"stream_id": bytes(16)}, "STREAM_NOT_FOUND"),
        ({"stream_id": b"short"}, "STREAM_NOT_FOUND"),
        ({"partition": 5}, "PARTITION_NOT_FOUND"),
        ({"acks": 7}, "INVALID_REQUEST"),
    ],
)
async def test_a_wrong_address_or_demand_is_a_definite_error(
    api: Api, fields: dict[str, object], code: str
) -> None:
    stream = await api.create()
    error = (await api.produce().produce(stream, batch(b"x"), **fields)).error
    assert code_of(error) == code
    assert error.definite
    assert not error.retriable


async def test_batches_that_break_the_format_are_refused_and_the_call_goes_on(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    good = batch(b"value", b"other")
    for broken in (
        b"",
        b"TLB1",
        good[:60],
        good[:-1],
        good + b"\0" * 8,
        b"XXXX" + good[4:],
        good[:8] + b"\1" + good[9:],
        good[:36] + b"\xff" + good[37:],
        good[:90] + bytes([good[90] ^ 1]) + good[91:],
    ):
        response = await call.produce(stream, broken, reset=True)
        assert code_of(response.error) in ("CORRUPT_BATCH", "UNSUPPORTED_VERSION", "INVALID_REQUEST"), broken
        assert response.error.definite
    assert (await call.produce(stream, good, reset=True)).receipt.base_offset == 0


async def test_a_batch_over_the_streams_limit_is_refused(api: Api) -> None:
    small = await api.create(batch_bytes_max=3072)
    error = (await api.produce().produce(small, batch(bytes(4000)))).error
    assert code_of(error) == "BATCH_TOO_LARGE"
    assert error.details.get("batch_bytes_max", "3072") == "3072"
    large = await api.create(batch_bytes_max=16 << 20)
    response = await api.produce().produce(large, batch(bytes(15 << 20)))
    assert response.HasField("receipt"), response.error


async def test_streams_take_batches_of_64_mib_only_where_brokers_take_such_messages(
    api: Api, tmp_path: Path
) -> None:
    refused = await refusal(
        api.admin.CreateStream(
            admin_pb2.CreateStreamRequest(
                name="large", config=common_pb2.StreamConfig(batch_bytes_max=64 << 20)
            )
        )
    )
    assert refused.code == "INVALID_REQUEST"
    assert "message_bytes_max" in refused.message
    small = await api.create()
    refused = await refusal(
        api.admin.AlterStream(
            admin_pb2.AlterStreamRequest(
                name=small.name, config=common_pb2.StreamConfig(batch_bytes_max=17 << 20)
            )
        )
    )
    assert "message_bytes_max" in refused.message
    with BrokerProcess(tmp_path, flags=("--message-bytes-max", str(65 << 20))) as broker:
        async with Api(broker.address) as own:
            large = await own.create(batch_bytes_max=64 << 20)
            response = await own.produce().produce(large, batch(bytes(60 << 20)))
            assert response.HasField("receipt"), response.error
            sizes = [len(one.batches) async for one in own.fetch(start_of(large), format=log_pb2.VERBATIM)]
            assert max(sizes) > 60 << 20


async def test_a_compressed_bomb_is_refused_before_it_is_opened(api: Api) -> None:
    stream = await api.create()
    bomb = batch(bytes(200 << 20), compression=Compression.ZSTD)
    assert len(bomb) < 1 << 20
    assert code_of((await api.produce().produce(stream, bomb)).error) == "BATCH_TOO_LARGE"


async def test_a_timestamp_far_in_the_future_is_refused(api: Api) -> None:
    stream = await api.create(timestamp_ahead_ms_max=60_000)
    now = int(time.time() * 1e6)
    call = api.produce()
    assert (await call.produce(stream, batch(b"x", timestamp_us=now))).HasField("receipt")
    error = (await call.produce(stream, batch(b"x", timestamp_us=now + 10 * MINUTE_US))).error
    assert code_of(error) == "INVALID_TIMESTAMP"


async def test_a_repeated_batch_is_answered_with_its_first_offsets(api: Api) -> None:
    stream, producer = await api.create(), await _producer(api)
    call = api.produce()
    first = batch(b"a", b"b", producer_id=producer)
    assert (await call.produce(stream, first)).receipt.base_offset == 0
    await call.produce(stream, batch(b"c", producer_id=producer, sequence=2))
    again = (await call.produce(stream, first)).receipt
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)
    assert await api.values(stream) == [b"a", b"b", b"c"]


async def test_a_repeat_on_another_call_adds_no_record_while_the_first_is_pending(api: Api) -> None:
    stream, producer = await api.create(), await _producer(api)
    calls = [api.produce() for _ in range(8)]
    data = batch(b"once", producer_id=producer)
    answers = await asyncio.gather(*(call.produce(stream, data) for call in calls))
    assert {answer.receipt.base_offset for answer in answers} == {0}
    assert sum(not answer.receipt.duplicate for answer in answers) == 1
    assert await api.values(stream) == [b"once"]


async def test_repeats_in_one_pipeline_are_duplicates_of_the_pending_batch(api: Api) -> None:
    stream, producer = await api.create(), await _producer(api)
    call = api.produce()
    for _ in range(6):
        await call.send(stream, batch(b"once", producer_id=producer))
    answers = [await call.answer() for _ in range(6)]
    assert [answer.receipt.duplicate for answer in answers] == [False] + [True] * 5


async def test_sequences_that_do_not_follow_are_refused(api: Api) -> None:
    stream, producer = await api.create(), await _producer(api)
    call = api.produce()
    assert (
        code_of((await call.produce(stream, batch(b"x", producer_id=producer, sequence=4))).error)
        == "UNKNOWN_PRODUCER"
    )
    assert (await call.produce(stream, batch(b"x", producer_id=producer), reset=True)).HasField("receipt")
    gap = (await call.produce(stream, batch(b"x", producer_id=producer, sequence=2))).error
    assert code_of(gap) == "OUT_OF_ORDER_SEQUENCE"
    for sequence in range(1, 8):
        await call.produce(stream, batch(b"x", producer_id=producer, sequence=sequence), reset=True)
    old = (await call.produce(stream, batch(b"x", producer_id=producer))).error
    assert code_of(old) == "DUPLICATE_SEQUENCE"


async def test_a_newer_epoch_of_a_producer_fences_the_older(api: Api) -> None:
    stream, producer = await api.create(), await _producer(api)
    call = api.produce()
    await call.produce(stream, batch(b"old", producer_id=producer))
    assert (await call.produce(stream, batch(b"new", producer_id=producer, epoch=1))).HasField("receipt")
    late = await call.produce(stream, batch(b"late", producer_id=producer, sequence=1))
    assert code_of(late.error) == "FENCED_PRODUCER"


async def test_a_conditional_append_goes_in_only_at_the_expected_offset(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    assert (await call.produce(stream, batch(b"a"), expected_offset=0)).HasField("receipt")
    error = (await call.produce(stream, batch(b"b"), expected_offset=0)).error
    assert code_of(error) == "UNEXPECTED_OFFSET"
    assert error.details["log_end_offset"] == "1"
    assert (await call.produce(stream, batch(b"b"), expected_offset=1, reset=True)).HasField("receipt")


async def test_of_many_who_expect_the_same_offset_one_wins(api: Api) -> None:
    stream = await api.create()
    calls = [api.produce() for _ in range(10)]
    answers = await asyncio.gather(*(c.produce(stream, batch(b"me"), expected_offset=0) for c in calls))
    assert sum(answer.HasField("receipt") for answer in answers) == 1


async def test_the_retry_of_a_conditional_append_is_a_duplicate_and_no_refusal(api: Api) -> None:
    stream, producer = await api.create(), await _producer(api)
    call = api.produce()
    data = batch(b"a", producer_id=producer)
    await call.produce(stream, data, expected_offset=0)
    again = await call.produce(stream, data, expected_offset=0)
    assert again.receipt.duplicate


async def test_many_calls_share_write_rounds_and_every_one_is_answered(api: Api) -> None:
    stream = await api.create(partitions=2)

    async def run(number: int) -> list[int]:
        call = api.produce()
        for _ in range(20):
            await call.send(stream, batch(b"%d" % number), partition=number % 2)
        offsets = [(await call.answer()).receipt.base_offset for _ in range(20)]
        await call.call.done_writing()
        return offsets

    found = await asyncio.gather(*(run(number) for number in range(20)))
    for partition in range(2):
        mine = [offset for number in range(partition, 20, 2) for offset in found[number]]
        assert sorted(mine) == list(range(200))
    assert all(offsets == sorted(offsets) for offsets in found)


async def test_a_call_that_its_client_cancels_harms_nobody(api: Api) -> None:
    stream = await api.create()
    for _ in range(10):
        call = api.produce()
        for _ in range(20):
            await call.send(stream, batch(b"x"))
        call.call.cancel()
    assert (await api.produce().produce(stream, batch(b"y"))).HasField("receipt")


async def test_half_closing_a_call_still_brings_every_answer(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    for _ in range(50):
        await call.send(stream, batch(b"x"))
    await call.call.done_writing()
    assert [(await call.answer()).receipt.base_offset for _ in range(50)] == list(range(50))
    assert await call.call.code() is grpc.StatusCode.OK


async def test_producer_ids_are_never_given_twice(api: Api) -> None:
    ids = await asyncio.gather(*(_producer(api) for _ in range(50)))
    assert len(set(ids)) == 50
    refused = await refusal(api.log.InitProducer(log_pb2.InitProducerRequest(producer_id=ids[0])))
    assert refused.facts["definite"] == "true"


async def test_one_call_writes_to_a_bounded_number_of_partitions(api: Api) -> None:
    stream = await api.create()
    call = api.produce()

    async def answers() -> list[str]:
        return [code_of((await call.answer()).error) for _ in range(10_000)]

    answering = asyncio.create_task(answers())
    for number in range(10_000):
        await call.send(stream, b"", partition=number)
    assert set(await asyncio.wait_for(answering, 60)) == {"PARTITION_NOT_FOUND", "CORRUPT_BATCH"}
    await call.send(stream, b"", partition=10_000)
    with pytest.raises(grpc.aio.AioRpcError, match="partitions already; open another call"):
        await call.answer()
