"""Any broker shows its own copy to who asks for it, up to what it knows to be committed, and never more."""

from __future__ import annotations

import pytest

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog.errors import InvalidRequest
from tidelog.records import split_batches
from tidelog.wire import error_from_proto
from tidelog_broker.api.fetch import FetchCall
from tidelog_broker.api.verbatim import VerbatimAnswer
from tidelog_proto import log_pb2


async def read(cluster: Cluster, broker: int, **wanted: object) -> tuple[list[int], str]:
    """First offsets of the batches in a broker's copy, and how the answers ended."""
    partition = log_pb2.FetchPartition(stream_id=STREAM, earliest=True)
    request = log_pb2.FetchRequest(partitions=[partition], **wanted)  # type: ignore[arg-type]
    found: list[int] = []
    ended = ""
    async for answer in FetchCall(cluster[broker].broker, request).responses():
        if isinstance(answer, log_pb2.FetchResponse):
            ended = error_from_proto(answer.error).code if answer.HasField("error") else "end"
        else:
            assert isinstance(answer, VerbatimAnswer)
            found += [header.base_offset for header, _ in split_batches(b"".join(answer.parts))]
    return found, ended


async def test_every_broker_shows_what_it_has_itself(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    for number in range(5):
        await appended(cluster[1].append(b"%d" % number))
    await cluster.become_equal()

    for broker in (1, 2, 3):
        assert await read(cluster, broker, own_replica=True) == ([0, 1, 2, 3, 4], "end")


async def test_without_asking_for_it_a_follower_refuses(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()

    assert await read(cluster, 2) == ([], "NOT_LEADER")


async def test_what_is_not_known_to_be_committed_is_not_shown(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"committed"))
    await cluster.become_equal()
    cluster.controller.unreachable = True
    await cluster[3].stop()
    cluster[1].append(b"waits for the third broker")
    await until(lambda: cluster[2].partition().log.end_offset == 2, "the second broker has it")

    for broker in (1, 2):
        assert await read(cluster, broker, own_replica=True) == ([0], "end")
    # A stop would wait for the third.
    await cluster[1].kill()


async def test_a_replica_cannot_be_followed(cluster: Cluster) -> None:
    await cluster.start(1)
    await cluster.create(replicas=[1])

    with pytest.raises(InvalidRequest, match="leave follow out"):
        await read(cluster, 1, own_replica=True, follow=True)
