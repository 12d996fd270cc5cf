"""Clients find streams: Resolve once, Watch from then on."""

from support.api import Api, refusal
from tidelog_proto import admin_pb2, common_pb2, metadata_pb2


async def test_names_resolve_to_ids_partitions_leaders_and_listeners(api: Api) -> None:
    stream = await api.create(partitions=2)
    found = await api.metadata.Resolve(metadata_pb2.ResolveRequest(names=[stream.name, "nobody"]))
    assert [one.stream_id for one in found.streams] == [stream.stream_id]
    assert list(found.missing) == ["nobody"]
    assert found.version > 0
    assert len(found.cluster_id) == 16
    (broker,) = found.brokers
    assert broker.broker_id == found.streams[0].partitions[1].leader
    assert broker.listeners[0].port > 0


async def test_patterns_resolve_to_all_that_match(api: Api) -> None:
    for name in ("tide-a", "tide-b", "ebb-a"):
        await api.create(name)
    found = await api.metadata.Resolve(metadata_pb2.ResolveRequest(pattern="tide-.*", names=["ebb-a"]))
    assert sorted(one.name for one in found.streams) == ["ebb-a", "tide-a", "tide-b"]


async def test_a_bad_pattern_is_refused(api: Api) -> None:
    refused = await refusal(api.metadata.Resolve(metadata_pb2.ResolveRequest(pattern="[")))
    assert refused.code == "INVALID_REQUEST"
    assert "regular expression" in refused.message


async def test_a_watch_tells_everything_first_and_then_what_changes(api: Api) -> None:
    before = await api.create()
    watch = api.metadata.Watch(metadata_pb2.WatchRequest())
    first = await watch.read()
    assert first.full
    assert before.stream_id in [stream.stream_id for stream in first.streams]

    created = await api.create()
    told = await watch.read()
    assert not told.full
    assert [stream.name for stream in told.streams] == [created.name]
    assert told.version > first.version

    await api.admin.AlterStream(
        admin_pb2.AlterStreamRequest(name=created.name, config=common_pb2.StreamConfig(partitions=2))
    )
    told = await watch.read()
    assert [len(stream.partitions) for stream in told.streams] == [2]

    await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name=created.name))
    told = await watch.read()
    assert list(told.deleted) == [created.stream_id]
    watch.cancel()


async def test_a_watch_that_listens_late_is_told_many_changes_at_once(api: Api) -> None:
    watch = api.metadata.Watch(metadata_pb2.WatchRequest())
    await watch.read()
    names = {(await api.create()).name for _ in range(20)}
    seen: set[str] = set()
    while seen != names:
        seen |= {stream.name for stream in (await watch.read()).streams}
    watch.cancel()
