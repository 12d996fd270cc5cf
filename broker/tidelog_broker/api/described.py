"""Describes streams as messages, a few partitions in each turn of the event loop.

Ten thousand partitions take 0.1 to 0.2 s, and a client that asks for them must not delay the others. Images
do not change, so an answer that is made in several turns still describes one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from msgspec import structs

from tidelog import wire
from tidelog_broker.core.metadata.image import StreamImage
from tidelog_proto import common_pb2

AT_ONCE_MAX = 500
"""Partitions, and streams, described in one turn: some milliseconds."""


class Messages(Protocol):
    """A repeated field."""

    def append(self, message: common_pb2.StreamDescription, /) -> None: ...


async def describe_into(messages: Messages, streams: Iterable[StreamImage]) -> None:
    """Appends what clients are told of each stream."""
    done = 0
    for stream in streams:
        message = wire.stream_to_proto(structs.replace(stream, partitions=()).describe())
        for number in range(len(stream.partitions)):
            message.partitions.append(wire.partition_to_proto(stream.describe_partition(number)))
            done = await counted(done)
        messages.append(message)
        done = await counted(done)


async def counted(done: int) -> int:
    """One more than `done`; after `AT_ONCE_MAX` the others have their turn, and it begins again."""
    if done < AT_ONCE_MAX:
        return done + 1
    await asyncio.sleep(0)
    return 0
