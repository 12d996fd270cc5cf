"""Streams as messages, described in several turns of the event loop."""

from __future__ import annotations

import asyncio

from tidelog import wire
from tidelog.model import StreamConfig
from tidelog_broker.api.described import AT_ONCE_MAX, describe_into
from tidelog_broker.core.metadata.image import PartitionImage, StreamImage
from tidelog_proto import common_pb2


def stream(number: int, partitions: int) -> StreamImage:
    placed = tuple(PartitionImage((1, 2), (1,), leader=1, leader_epoch=epoch) for epoch in range(partitions))
    return StreamImage(f"s{number}", b"%016d" % number, StreamConfig(), 3, 4, placed, {"a": "b"}, "me")


async def test_a_stream_is_described_as_the_library_has_it() -> None:
    streams = [stream(number, partitions) for number, partitions in enumerate((0, 1, 3, 2 * AT_ONCE_MAX))]
    found: list[common_pb2.StreamDescription] = []
    await describe_into(found, streams)
    assert found == [wire.stream_to_proto(one.describe()) for one in streams]


async def test_others_have_their_turn_while_very_many_partitions_are_described() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await describe_into([], [stream(0, 3 * AT_ONCE_MAX), *(stream(1, 1) for _ in range(AT_ONCE_MAX))])
    beside.cancel()
    assert turns >= 4
