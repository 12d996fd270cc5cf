"""Publish: plain records of clients that have no Arrow, single or a handful, deduplicated if they say so."""

import asyncio
import time

import pytest

from support.api import Api, batch, record, refusal
from support.broker import BrokerProcess
from support.waiting import until_true
from tidelog.records.checksum import crc32c
from tidelog_proto import admin_pb2, common_pb2, log_pb2


async def test_plain_records_come_back_as_they_went_in(api: Api) -> None:
    stream = await api.create()
    sent = [
        record(b"v", key=b"k", subject="a.b", timestamp_us=1_700_000_000_000_000,
               headers=[("h", b"1"), ("h", b"2"), ("empty", b""), ("none", None)]),
        record(b""),
        record(None, key=b"tombstone"),
        record(b"\x00\xff", key=b""),
    ]  # fmt: skip
    receipts = await api.publish(stream, *sent)
    assert [receipt.offset for receipt in receipts] == [0, 1, 2, 3]
    found = [one.record for one in await api.read(stream)]
    assert found[0] == sent[0].record
    assert (found[1].value, found[1].HasField("value"), found[1].HasField("key")) == (b"", True, False)
    assert (found[2].HasField("value"), found[2].key) == (False, b"tombstone")
    assert (found[3].value, found[3].HasField("key")) == (b"\x00\xff", True)
    assert found[0].headers[3].HasField("value") is False
    assert found[0].headers[2].HasField("value") is True
    assert abs(found[1].timestamp_us - time.time() * 1e6) < 60e6


async def test_a_stream_is_found_by_name_too(api: Api) -> None:
    stream = await api.create()
    response = await api.log.Publish(log_pb2.PublishRequest(name=stream.name, records=[record(b"x")]))
    assert response.receipts[0].offset == 0


async def test_keys_choose_the_partition_and_records_without_one_stay_together(api: Api) -> None:
    stream = await api.create(partitions=4)
    keys = [b"key-%d" % number for number in range(40)]
    receipts = await api.publish(stream, *(record(b"x", key=key) for key in keys))
    assert [receipt.partition for receipt in receipts] == [crc32c(key) % 4 for key in keys]
    plain = await api.publish(stream, *[b"x"] * 10)
    assert len({receipt.partition for receipt in plain}) == 1
    rounds = [(await api.publish(stream, b"x"))[0].partition for _ in range(4)]
    assert sorted(rounds) == [0, 1, 2, 3]


async def test_a_named_partition_takes_them_all(api: Api) -> None:
    stream = await api.create(partitions=3)
    receipts = await api.publish(stream, record(b"x", key=b"a"), record(b"y", key=b"b"), partition=2)
    assert [(receipt.partition, receipt.offset) for receipt in receipts] == [(2, 0), (2, 1)]
    assert (await refusal(api.publish(stream, b"x", partition=3))).code == "PARTITION_NOT_FOUND"


async def test_many_at_once_share_batches_and_each_gets_its_own_offset(api: Api) -> None:
    stream = await api.create()
    answers = await asyncio.gather(*(api.publish(stream, b"%d" % n) for n in range(200)))
    offsets = [answer[0].offset for answer in answers]
    assert sorted(offsets) == list(range(200))
    values = await api.values(stream)
    assert [values[offset] for offset in offsets] == [b"%d" % n for n in range(200)]


async def test_a_message_id_is_recorded_once_within_a_request_and_across_them(api: Api) -> None:
    stream = await api.create()
    first = await api.publish(stream, record(b"a", message_id="1"), record(b"b", message_id="2"),
                              record(b"c", message_id="1"))  # fmt: skip
    assert [(r.offset, r.duplicate) for r in first] == [(0, False), (1, False), (0, True)]
    again = await api.publish(stream, record(b"d", message_id="2"), record(b"e", message_id="3"))
    assert [(r.offset, r.duplicate) for r in again] == [(1, True), (2, False)]
    assert await api.values(stream) == [b"a", b"b", b"e"]


async def test_the_message_id_stands_among_the_headers_and_a_header_is_one(api: Api) -> None:
    stream = await api.create()
    await api.publish(stream, record(b"a", message_id="x"))
    (again,) = await api.publish(stream, record(b"b", headers=[("Nats-Msg-Id", b"x")]))
    assert again.duplicate
    (found,) = await api.read(stream)
    assert [(h.name, h.value) for h in found.record.headers] == [("Nats-Msg-Id", b"x")]


async def test_message_ids_of_requests_in_one_write_round_are_deduplicated(api: Api) -> None:
    stream = await api.create()
    answers = await asyncio.gather(*(api.publish(stream, record(b"x", message_id="same")) for _ in range(50)))
    assert {answer[0].offset for answer in answers} == {0}
    assert sum(not answer[0].duplicate for answer in answers) == 1


async def test_a_stream_without_a_window_takes_every_copy(api: Api) -> None:
    stream = await api.create(dedupe_window_ms=0)
    receipts = await api.publish(stream, record(b"a", message_id="1"), record(b"b", message_id="1"))
    assert [r.duplicate for r in receipts] == [False, False]


async def test_an_id_is_forgotten_after_the_window(api: Api) -> None:
    stream = await api.create(dedupe_window_ms=100)
    await api.publish(stream, record(b"a", message_id="1"))

    async def is_forgotten() -> bool:
        return not (await api.publish(stream, record(b"b", message_id="1")))[0].duplicate

    await until_true(is_forgotten, "the id is forgotten")


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a kill"])
async def test_message_ids_outlive_the_process(own_broker: BrokerProcess, clean: bool) -> None:
    async with Api(own_broker.address) as api:
        stream = await api.create()
        await api.publish(stream, record(b"a", message_id="kept"))
    own_broker.stop() if clean else own_broker.kill()
    own_broker.start()
    async with Api(own_broker.address) as api:
        (again,) = await api.publish(stream, record(b"b", message_id="kept"))
        assert (again.offset, again.duplicate) == (0, True)


@pytest.mark.parametrize(
    ("records", "fields", "code"),
    [
        ([], {}, "INVALID_REQUEST"),
        ([record(b"x")], {"acks": 9}, "INVALID_REQUEST"),
        ([record(b"x", message_id="m", headers=[("Nats-Msg-Id", b"m")])], {}, "INVALID_REQUEST"),
        ([record(b"x", message_id="m" * 2000)], {}, "INVALID_REQUEST"),
        ([record(b"x", headers=[("h", b"")] * 2000)], {}, "INVALID_REQUEST"),
        ([record(bytes(2 << 20))], {}, "BATCH_TOO_LARGE"),
        ([record(b"x", timestamp_us=1 << 62)], {}, "INVALID_TIMESTAMP"),
    ],
    ids=["none", "acks", "two ids", "long id", "headers", "size", "future"],
)
async def test_what_can_never_be_right_is_refused_as_a_whole(
    api: Api, records: list[log_pb2.PublishRecord], fields: dict[str, int], code: str
) -> None:
    stream = await api.create(partitions=2)
    good = [record(b"good", key=b"%d" % number) for number in range(8)] if records else []
    refused = await refusal(api.publish(stream, *good, *records, **fields))
    assert refused.code == code
    assert refused.facts["definite"] == "true"
    assert await api.values(stream, 0) + await api.values(stream, 1) == []


async def test_records_that_just_fit_are_stored_and_one_byte_more_is_refused(
    api: Api,
) -> None:
    stream = await api.create(batch_bytes_max=16_384)
    low, high = 1, 16_384
    while high - low > 1:
        middle = (low + high) // 2
        try:
            await api.publish(stream, bytes(middle))
        except Exception:
            high = middle
        else:
            low = middle
    assert low > 13_000
    before = len(await api.values(stream))
    assert (await refusal(api.publish(stream, bytes(high)))).code == "BATCH_TOO_LARGE"
    assert len(await api.values(stream)) == before


async def test_a_batch_of_the_smallest_allowed_size_still_takes_a_record(api: Api) -> None:
    stream = await api.create(batch_bytes_max=4096)
    assert (await api.publish(stream, b"x"))[0].offset == 0


async def test_no_stream_and_an_unknown_stream_are_told_apart(api: Api) -> None:
    nobody = api.log.Publish(log_pb2.PublishRequest(records=[record(b"x")]))
    assert (await refusal(nobody)).code == "INVALID_REQUEST"
    unknown = api.log.Publish(log_pb2.PublishRequest(name="nobody", records=[record(b"x")]))
    assert (await refusal(unknown)).code == "STREAM_NOT_FOUND"


async def test_a_renamed_id_reaches_only_the_stream_it_was_given_to(api: Api) -> None:
    old = await api.create()
    await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name=old.name))
    new = await api.create(old.name)
    assert (await refusal(api.publish(old, b"x"))).code == "STREAM_NOT_FOUND"
    assert await api.values(new) == []


async def test_publish_and_produce_keep_their_order_in_one_partition(api: Api) -> None:
    stream = await api.create(durability=common_pb2.PAGE_CACHE)
    call = api.produce()
    expected = []
    for number in range(20):
        await call.produce(stream, batch(b"b%d" % number))
        await api.publish(stream, b"p%d" % number)
        expected += [b"b%d" % number, b"p%d" % number]
    assert await api.values(stream) == expected


async def test_a_large_request_is_stored_whole_and_checked_like_a_small_one(api: Api) -> None:
    stream = await api.create(partitions=3, timestamp_ahead_ms_max=1000)
    records = [record(b"%d" % number, key=b"k%d" % number) for number in range(10_000)]
    receipts = await api.publish(stream, *records)
    assert len(receipts) == len(records)
    for part in range(3):
        wanted = [b"%d" % number for number, one in enumerate(receipts) if one.partition == part]
        assert await api.values(stream, part) == wanted
    wrong = [*records, record(b"", timestamp_us=int(time.time() * 1e6) + 10**9)][1:]
    refused = await refusal(
        api.log.Publish(log_pb2.PublishRequest(stream_id=stream.stream_id, records=wrong))
    )
    assert refused.code == "INVALID_TIMESTAMP"
