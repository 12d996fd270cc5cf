"""N5: a leader that is there settles what it has appended before another one takes over.

A writer whose batch was written and not yet committed when its leader is deposed is left in doubt, and
one without idempotence cannot repeat it. So a change of leader that nothing forces (a preferred leader, a
reassignment's end, a drain, a stop, a damaged leader) is wished for first. The controller answers the
leader's heartbeats with what is wished; the leader takes no more appends of clients, waits until what it
has is committed, and says so; then the change is made. Who does not say so in time is not waited for.

This is the controller's memory, like `deprioritized`: another controller wishes again. Without a word of it
every change is as safe, and leaves some writers in doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from tidelog_broker.core.metadata.commands import PartitionChange
from tidelog_broker.core.metadata.decisions.elections import PartitionKey
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage

SETTLE_MS_MAX: Final = 2_000
"""How long a change waits for the leader: eight heartbeats, in which it is asked, settles and says so."""

SETTLED_MS: Final = 500
"""How long a leader's word holds; it takes appends again some time after that (`HOLD_SECONDS`)."""

FORGET_MS: Final = 1_000
"""A change that was not asked for during that time is not wished for any more."""

WISHES_MAX: Final = 1_000
"""Of one leader at a time, so that one answer names them all: a leader has the whole time for each of them,
and what it leads besides takes appends until its turn comes."""


class Led(msgspec.Struct, frozen=True, array_like=True):
    """A leadership."""

    stream_id: bytes
    partition: int
    leader_epoch: int


class _Wish(msgspec.Struct):
    leader: int
    leader_epoch: int
    since_ms: int
    asked_ms: int
    settled_ms: int | None = None


class Handovers:
    """What is wished for. At most one wish for each partition."""

    def __init__(self) -> None:
        self._wishes: dict[PartitionKey, _Wish] = {}

    def __repr__(self) -> str:
        settled = sum(wish.settled_ms is not None for wish in self._wishes.values())
        return f"<Handovers wishes={len(self._wishes)} settled={settled}>"

    def due(
        self, image: ClusterImage, changes: Sequence[PartitionChange], now_ms: int
    ) -> tuple[PartitionChange, ...]:
        """Those of the planned `changes` that may be made now; ask again for the others.

        These are wished for, `WISHES_MAX` of each leader at a time.
        """
        self._forget(image, now_ms)
        open_wishes = Counter(wish.leader for wish in self._wishes.values())
        return tuple(change for change in changes if self._is_due(image, change, now_ms, open_wishes))

    def wished(self, image: ClusterImage, broker: int, now_ms: int) -> tuple[Led, ...]:
        """What `broker` leads and is to settle."""
        self._forget(image, now_ms)
        return tuple(
            Led(stream_id, number, wish.leader_epoch)
            for (stream_id, number), wish in self._wishes.items()
            if wish.leader == broker and wish.settled_ms is None
        )

    def settled(self, broker: int, settled: Iterable[Led], now_ms: int) -> None:
        """The registered run of `broker` says that it has settled these."""
        for one in settled:
            wish = self._wishes.get((one.stream_id, one.partition))
            if wish is not None and (wish.leader, wish.leader_epoch) == (broker, one.leader_epoch):
                wish.settled_ms = now_ms

    def _is_due(
        self, image: ClusterImage, change: PartitionChange, now_ms: int, open_wishes: Counter[int]
    ) -> bool:
        key = (change.stream_id, change.partition)
        partition = image.partition(*key)
        if partition is None or partition.leader is None or change.leader in (UNSET, None, partition.leader):
            return True
        wish = self._wishes.get(key)
        if wish is None:
            if open_wishes[partition.leader] < WISHES_MAX:
                open_wishes[partition.leader] += 1
                self._wishes[key] = _Wish(partition.leader, partition.leader_epoch, now_ms, now_ms)
            return False
        wish.asked_ms = now_ms
        return wish.settled_ms is not None or now_ms - wish.since_ms >= SETTLE_MS_MAX

    def _forget(self, image: ClusterImage, now_ms: int) -> None:
        over = [
            key
            for key, wish in self._wishes.items()
            if (partition := image.partition(*key)) is None or not _holds(wish, partition, now_ms)
        ]
        for key in over:
            del self._wishes[key]


def _holds(wish: _Wish, partition: PartitionImage, now_ms: int) -> bool:
    return (
        (wish.leader, wish.leader_epoch) == (partition.leader, partition.leader_epoch)
        and now_ms - wish.asked_ms < FORGET_MS
        and (wish.settled_ms is None or now_ms - wish.settled_ms < SETTLED_MS)
    )
