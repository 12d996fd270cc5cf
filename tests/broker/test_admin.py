"""Streams are created, altered, deleted, described and listed."""

import asyncio

import grpc
import grpc.aio
import pytest

from support.api import Api, batch, code_of, refusal
from support.waiting import until
from tidelog_proto import admin_pb2, common_pb2, log_pb2


def _create(name: str, **config: object) -> admin_pb2.CreateStreamRequest:
    return admin_pb2.CreateStreamRequest(name=name, config=common_pb2.StreamConfig(**config))  # type: ignore[arg-type]


async def test_a_new_stream_comes_back_with_every_setting_filled_in(api: Api) -> None:
    response = await api.admin.CreateStream(_create("filled", partitions=3, subject="filled.>"))
    stream = response.stream
    assert response.created
    assert len(stream.stream_id) == 16
    assert stream.config.partitions == 3
    assert stream.config.subject == "filled.>"
    assert stream.config.replication_factor == 1
    assert stream.config.durability == common_pb2.FSYNC
    assert stream.config.retention.age_ms == 7 * 24 * 3600 * 1000
    assert [(p.partition, p.leader, list(p.isr)) for p in stream.partitions] == [
        (0, 0, [0]), (1, 0, [0]), (2, 0, [0]),
    ]  # fmt: skip


async def test_creating_twice_with_the_same_settings_is_success_and_changes_nothing(api: Api) -> None:
    first = await api.admin.CreateStream(_create("twice", partitions=2))
    again = await api.admin.CreateStream(_create("twice", partitions=2))
    assert first.created
    assert not again.created
    assert again.stream == first.stream


async def test_creating_without_a_setting_agrees_with_whatever_it_is(api: Api) -> None:
    first = await api.admin.CreateStream(_create("loose", partitions=2))
    again = await api.admin.CreateStream(_create("loose"))
    assert again.stream.stream_id == first.stream.stream_id


async def test_creating_again_with_other_settings_names_what_differs(api: Api) -> None:
    await api.admin.CreateStream(_create("differs", partitions=2, segment_bytes=1 << 24))
    refused = await refusal(api.admin.CreateStream(_create("differs", partitions=3, segment_bytes=1 << 25)))
    assert refused.code == "STREAM_EXISTS"
    assert refused.status is grpc.StatusCode.ALREADY_EXISTS
    assert "partitions" in refused.message
    assert "segment_bytes" in refused.message


async def test_many_at_once_create_one_stream(api: Api) -> None:
    answers = await asyncio.gather(*(api.admin.CreateStream(_create("race")) for _ in range(20)))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.stream.stream_id for answer in answers}) == 1


async def test_validate_only_checks_everything_and_makes_nothing(api: Api) -> None:
    request = _create("imagined")
    request.validate_only = True
    answer = await api.admin.CreateStream(request)
    assert (answer.created, answer.stream.name, len(answer.stream.partitions)) == (True, "imagined", 1)
    refused = await refusal(api.admin.DescribeStream(admin_pb2.DescribeStreamRequest(name="imagined")))
    assert refused.code == "STREAM_NOT_FOUND"
    bad = _create("imagined", partitions=0)
    bad.validate_only = True
    assert (await refusal(api.admin.CreateStream(bad))).code == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("", {}),
        (".hidden", {}),
        ("a/b", {}),
        ("a" * 201, {}),
        ("__internal", {}),
        ("ok", {"subject": "a..b"}),
        ("ok", {"subject": "a.>.b"}),
        ("ok", {"partitions": 0}),
        ("ok", {"durability": 9}),
        ("ok", {"batch_bytes_max": 1 << 30}),
        ("ok", {"replication_factor": 3}),
        ("ok", {"retention": common_pb2.Retention(age_ms=0)}),
    ],
)
async def test_a_setting_that_can_never_be_right_is_refused_with_a_sentence(
    api: Api, name: str, config: dict[str, object]
) -> None:
    refused = await refusal(api.admin.CreateStream(_create(name, **config)))
    assert refused.code == "INVALID_REQUEST"
    assert refused.status is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.facts["retriable"] == "false"
    assert refused.facts["definite"] == "true"
    assert len(refused.message) > 10


async def test_alter_changes_only_the_given_settings(api: Api) -> None:
    stream = await api.create(segment_bytes=1 << 24, partitions=2)
    response = await api.admin.AlterStream(
        admin_pb2.AlterStreamRequest(
            name=stream.name, config=common_pb2.StreamConfig(retention=common_pb2.Retention(messages=7))
        )
    )
    assert response.stream.config.retention.messages == 7
    assert response.stream.config.segment_bytes == 1 << 24
    assert response.stream.version > stream.version


async def test_an_altered_limit_holds_from_the_next_batch_on(api: Api) -> None:
    stream = await api.create()
    call = api.produce()
    assert (await call.produce(stream, batch(bytes(8000)))).HasField("receipt")
    await api.admin.AlterStream(
        admin_pb2.AlterStreamRequest(name=stream.name, config=common_pb2.StreamConfig(batch_bytes_max=4096))
    )
    assert code_of((await call.produce(stream, batch(bytes(8000)))).error) == "BATCH_TOO_LARGE"


async def test_partitions_grow_and_the_new_ones_serve_at_once(api: Api) -> None:
    stream = await api.create(partitions=1)
    grown = await api.admin.AlterStream(
        admin_pb2.AlterStreamRequest(name=stream.name, config=common_pb2.StreamConfig(partitions=4))
    )
    receipts = await api.publish(grown.stream, b"x", partition=3)
    assert [(r.partition, r.offset) for r in receipts] == [(3, 0)]


async def test_partitions_never_shrink(api: Api) -> None:
    stream = await api.create(partitions=2)
    request = admin_pb2.AlterStreamRequest(name=stream.name, config=common_pb2.StreamConfig(partitions=1))
    refused = await refusal(api.admin.AlterStream(request))
    assert refused.code == "INVALID_REQUEST"
    assert "only grow" in refused.message


async def test_a_change_that_expects_an_older_version_is_refused(api: Api) -> None:
    stream = await api.create()
    change = common_pb2.StreamConfig(segment_bytes=1 << 24)
    await api.admin.AlterStream(
        admin_pb2.AlterStreamRequest(name=stream.name, config=change, expected_version=stream.version)
    )
    stale = admin_pb2.AlterStreamRequest(
        name=stream.name,
        config=common_pb2.StreamConfig(segment_bytes=1 << 25),
        expected_version=stream.version,
    )
    refused = await refusal(api.admin.AlterStream(stale))
    assert refused.code == "VERSION_CONFLICT"
    assert refused.status is grpc.StatusCode.ABORTED


async def test_an_empty_change_is_refused(api: Api) -> None:
    stream = await api.create()
    refused = await refusal(api.admin.AlterStream(admin_pb2.AlterStreamRequest(name=stream.name)))
    assert refused.code == "INVALID_REQUEST"


async def test_a_deleted_stream_is_gone_and_its_successor_is_another(api: Api) -> None:
    stream = await api.create()
    await api.publish(stream, b"old")
    response = await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name=stream.name))
    assert response.stream_id == stream.stream_id
    assert (await refusal(api.publish(stream, b"late"))).code == "STREAM_NOT_FOUND"
    successor = await api.create(stream.name)
    assert successor.stream_id != stream.stream_id
    assert await api.values(successor) == []


async def test_deleting_another_stream_of_that_name_is_refused(api: Api) -> None:
    stream = await api.create()
    request = admin_pb2.DeleteStreamRequest(name=stream.name, stream_id=bytes(16))
    refused = await refusal(api.admin.DeleteStream(request))
    assert refused.code in ("STREAM_NOT_FOUND", "VERSION_CONFLICT")
    assert await api.publish(stream, b"still here")


async def test_unknown_names_are_not_found(api: Api) -> None:
    for call in (
        api.admin.DescribeStream(admin_pb2.DescribeStreamRequest(name="nobody")),
        api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name="nobody")),
        api.admin.AlterStream(
            admin_pb2.AlterStreamRequest(name="nobody", config=common_pb2.StreamConfig(partitions=2))
        ),
        api.admin.DescribeReplicas(admin_pb2.DescribeReplicasRequest(name="nobody")),
    ):
        refused = await refusal(call)
        assert refused.code == "STREAM_NOT_FOUND"
        assert refused.status is grpc.StatusCode.NOT_FOUND


async def test_labels_are_kept(api: Api) -> None:
    request = admin_pb2.CreateStreamRequest(name="labelled", labels={"team": "tide", "tier": "gold"})
    await api.admin.CreateStream(request)
    found = await api.admin.DescribeStream(admin_pb2.DescribeStreamRequest(name="labelled"))
    assert dict(found.stream.labels) == {"team": "tide", "tier": "gold"}


async def test_lists_come_in_pages_and_by_pattern(api: Api) -> None:
    names = [f"page-{number}" for number in range(5)]
    await asyncio.gather(*(api.create(name) for name in names))
    found: list[str] = []
    token = ""
    for _ in range(3):
        page = await api.admin.ListStreams(
            admin_pb2.ListStreamsRequest(pattern="page-[0-9]", page_size=2, page_token=token)
        )
        found += [stream.name for stream in page.streams]
        token = page.next_page_token
    assert found == names
    assert token == ""


async def test_a_pattern_must_match_whole_names(api: Api) -> None:
    await api.create("whole-name")
    page = await api.admin.ListStreams(admin_pb2.ListStreamsRequest(pattern="whole"))
    assert list(page.streams) == []


async def test_a_bad_pattern_or_page_is_refused(api: Api) -> None:
    for request in (
        admin_pb2.ListStreamsRequest(pattern="a("),
        admin_pb2.ListStreamsRequest(pattern="a" * 2000),
        admin_pb2.ListStreamsRequest(page_size=1 << 30),
    ):
        assert (await refusal(api.admin.ListStreams(request))).code == "INVALID_REQUEST"


async def test_the_cluster_describes_itself(api: Api) -> None:
    await api.create(partitions=2)
    found = await api.admin.DescribeCluster(admin_pb2.DescribeClusterRequest())
    assert len(found.cluster_id) == 16
    assert found.controller == 0
    assert list(found.voters) == [0]
    assert found.stream_count >= 1
    assert found.partition_count >= found.stream_count
    (broker,) = found.brokers
    assert broker.state == "active"
    assert broker.listeners[0].name == "internal"


async def test_replicas_say_where_they_stand(api: Api) -> None:
    stream = await api.create(partitions=2)
    await api.publish(stream, b"one", b"two", partition=1)
    found = await api.admin.DescribeReplicas(admin_pb2.DescribeReplicasRequest(name=stream.name))
    assert [(r.partition, r.leader, r.state) for r in found.replicas] == [
        (0, True, "online"), (1, True, "online"),
    ]  # fmt: skip
    second = found.replicas[1]
    assert (second.log_start_offset, second.high_watermark, second.log_end_offset) == (0, 2, 2)
    assert second.durable_offset == 2
    assert second.bytes > 0
    assert second.segments == 1


async def test_a_stream_deleted_under_load_ends_its_producers_and_readers_and_nobody_elses(api: Api) -> None:
    victim, other = await api.create(), await api.create()
    answered: list[str] = []

    async def load(stream: common_pb2.StreamDescription, stop: asyncio.Event) -> None:
        call = api.produce()
        sent = 0
        while not stop.is_set():
            for _ in range(10):
                await call.send(stream, batch(bytes(500)), reset=True)
                sent += 1
            for _ in range(10):
                response = await call.answer()
                answered.append("ok" if response.HasField("receipt") else code_of(response.error))
        await call.call.done_writing()

    async def follow() -> str:
        async for response in api.fetch(
            log_pb2.FetchPartition(stream_id=victim.stream_id, earliest=True), follow=True
        ):
            if response.HasField("error"):
                return code_of(response.error)
        return "ended"

    stop = asyncio.Event()
    loads = [asyncio.create_task(load(stream, stop)) for stream in (victim, victim, other)]
    reader = asyncio.create_task(follow())
    await until(lambda: answered.count("ok") >= 50, "records are written")
    await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name=victim.name))
    assert await asyncio.wait_for(reader, 10) == "STREAM_NOT_FOUND"
    stop.set()
    await asyncio.wait_for(asyncio.gather(*loads), 10)
    assert set(answered) <= {"ok", "STREAM_NOT_FOUND"}
    assert (await api.publish(other, b"still"))[0].offset > 0
