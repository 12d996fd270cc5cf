"""The position of a Fetch call in one of its partitions."""

from __future__ import annotations

import asyncio

from tidelog_broker.limits.answer_room import Held
from tidelog_broker.storage.segments.reading import Chunk
from tidelog_broker.writing.partition import Partition


class Reading:
    """The position of a call in one partition, and what it holds for it."""

    __slots__ = (
        "ahead",
        "ahead_room",
        "chunk_bytes",
        "decoded_bytes",
        "done",
        "dry",
        "end",
        "epoch",
        "index",
        "leader_epoch",
        "offset",
        "partition",
        "place",
        "silent_bytes",
        "told_at",
        "told_offset",
    )

    def __init__(
        self,
        index: int,
        partition: Partition,
        offset: int,
        epoch: int | None,
        end: int | None,
        *,
        chunk_bytes: int,
    ) -> None:
        self.index = index
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        """Of the leader whose log the position was found to fit (R13)."""
        self.offset = offset
        self.epoch = epoch
        self.end = end
        """First offset not to send; None: none, it follows."""
        self.done = False
        """Its last answer, an end or an error, was given."""
        self.dry = False
        """The last look found nothing to read; a commit wakes it."""
        self.place: tuple[int, int] | None = None
        self.ahead: asyncio.Future[Chunk | None] | None = None
        """A read of the next chunk that runs already."""
        self.ahead_room: Held | None = None
        """For that chunk."""
        self.chunk_bytes = chunk_bytes
        """So much is read from the log at a time, about."""
        self.decoded_bytes = 0
        """What the next chunk takes once decoded, if that is known; 0: it is not."""
        self.told_at = asyncio.get_running_loop().time()
        """When the client last heard of this partition; on the event loop's clock."""
        self.told_offset = offset
        """Where the last projected answer ended: no record from there up to `offset` matched."""
        self.silent_bytes = 0
        """Bytes of the log that were read since then."""

    def limit(self) -> int:
        """Below what the next chunk must end: whole batches, so an `end` inside one is passed."""
        return self.partition.high_watermark

    def finished(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def take_ahead_room(self) -> Held | None:
        """The room for what is read ahead, which the caller must release."""
        room, self.ahead_room = self.ahead_room, None
        return room

    def close(self) -> None:
        """Gives back what is held for it, once no thread reads ahead."""
        room = self.take_ahead_room()
        if room is None:
            return
        if self.ahead is None or self.ahead.done():
            room.release()
        else:
            self.ahead.add_done_callback(lambda _: room.release())

    def is_told(self, offset: int) -> None:
        """A projected answer tells of all offsets below `offset`."""
        self.told_offset, self.silent_bytes = offset, 0

    def stands_behind(self, offset: int, epoch: int | None, place: tuple[int, int] | None) -> None:
        """Everything below `offset` was sent; `place` is where the next read may begin, if known."""
        self.offset, self.epoch, self.place = offset, epoch, place
