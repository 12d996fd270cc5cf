"""Offsets and DeleteRecords: where a log begins, ends, and what a start means."""

from support.api import Api, code_of, record, refusal, start_of
from tidelog_proto import log_pb2


async def test_offsets_resolve_every_kind_of_start_in_order(api: Api) -> None:
    stream = await api.create()
    for second in range(4):
        await api.publish(stream, record(b"x", timestamp_us=second * 1_000_000))
    epoch = stream.partitions[0].leader_epoch
    found = await api.log.Offsets(
        log_pb2.OffsetsRequest(
            partitions=[
                start_of(stream),
                start_of(stream, latest=True),
                start_of(stream, timestamp_us=1_500_000),
                start_of(stream, position=log_pb2.Position(offset=1)),
                start_of(stream, 7),
                log_pb2.FetchPartition(stream_id=bytes(16), earliest=True),
            ]
        )
    )
    *good, missing, unknown = found.partitions
    assert [one.position.offset for one in good] == [0, 4, 2, 1]
    assert [one.position.leader_epoch for one in good[1:3]] == [epoch, epoch]
    assert not good[0].position.HasField("leader_epoch")
    assert {(one.log_start_offset, one.high_watermark, one.log_end_offset) for one in good} == {(0, 4, 4)}
    assert code_of(missing.error) == "PARTITION_NOT_FOUND"
    assert code_of(unknown.error) == "STREAM_NOT_FOUND"


async def test_too_many_partitions_are_refused(api: Api) -> None:
    many = [log_pb2.FetchPartition()] * 10_001
    assert (await refusal(api.log.Offsets(log_pb2.OffsetsRequest(partitions=many)))).code == "INVALID_REQUEST"


async def test_deleted_records_are_not_read_any_more(api: Api) -> None:
    stream = await api.create()
    await api.publish(stream, *[b"%d" % n for n in range(10)])
    request = log_pb2.DeleteRecordsRequest(stream_id=stream.stream_id, before_offset=6)
    assert (await api.log.DeleteRecords(request)).log_start_offset == 6
    assert await api.values(stream) == [b"6", b"7", b"8", b"9"]
    back = log_pb2.DeleteRecordsRequest(stream_id=stream.stream_id, before_offset=2)
    assert (await api.log.DeleteRecords(back)).log_start_offset == 6


async def test_without_an_offset_everything_committed_goes(api: Api) -> None:
    stream = await api.create()
    await api.publish(stream, b"a", b"b")
    request = log_pb2.DeleteRecordsRequest(stream_id=stream.stream_id)
    assert (await api.log.DeleteRecords(request)).log_start_offset == 2
    assert await api.values(stream) == []
    assert (await api.publish(stream, b"c"))[0].offset == 2


async def test_deleting_beyond_the_end_is_refused(api: Api) -> None:
    stream = await api.create()
    request = log_pb2.DeleteRecordsRequest(stream_id=stream.stream_id, before_offset=1)
    refused = await refusal(api.log.DeleteRecords(request))
    assert refused.code in ("INVALID_REQUEST", "OFFSET_OUT_OF_RANGE")
