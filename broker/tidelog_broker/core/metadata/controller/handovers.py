"""N5: a leader settles its appends before another broker takes over as planned.

If a leader is replaced while a batch is written and not yet committed, its writer does not know the outcome,
and a writer without idempotence cannot repeat the batch. So a planned change of leader (to the preferred
leader, at the end of a reassignment, for a drain, a stop or a damaged leader) begins with a request to
settle. The controller sends the requests with its answers to the leader's heartbeats. The leader accepts no
more appends, waits until its log is committed, and reports that it has settled; then the change is made. A
leader that does not report in time is not waited for.

This is the controller's memory, like `deprioritized`: a new controller requests again. Without it
every change is equally safe, but some writers do not know the outcome of an append.
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
"""How long a change waits for the leader: eight heartbeats, in which it is asked, settles and reports."""

SETTLED_MS: Final = 500
"""How long a leader's report holds; the leader accepts appends again some time later (`HOLD_SECONDS`)."""

FORGET_MS: Final = 1_000
"""A request whose change was not planned again within this time is dropped."""

SETTLING_MAX: Final = 1_000
"""Requests to one leader at a time, so that one answer names them all: a leader has the whole time for each
of them, and its other partitions accept appends until their turn comes."""


class Led(msgspec.Struct, frozen=True, array_like=True):
    """A leadership: one partition in one leader epoch."""

    stream_id: bytes
    partition: int
    leader_epoch: int


class _SettleRequest(msgspec.Struct):
    """A request to one leader to settle one partition."""

    leader: int
    leader_epoch: int
    since_ms: int
    asked_ms: int
    """When the change was last planned."""
    settled_ms: int | None = None
    """When the leader reported; None: not yet."""


class Handovers:
    """The requests to settle. At most one for each partition."""

    def __init__(self) -> None:
        self._requests: dict[PartitionKey, _SettleRequest] = {}

    def __repr__(self) -> str:
        settled = sum(request.settled_ms is not None for request in self._requests.values())
        return f"<Handovers requests={len(self._requests)} settled={settled}>"

    def due(
        self, image: ClusterImage, changes: Sequence[PartitionChange], now_ms: int
    ) -> tuple[PartitionChange, ...]:
        """The planned `changes` that may be made now; plan the others again later.

        Their leaders are asked to settle, `SETTLING_MAX` partitions of each leader at a time.
        """
        self._forget(image, now_ms)
        open_requests = Counter(request.leader for request in self._requests.values())
        return tuple(change for change in changes if self._is_due(image, change, now_ms, open_requests))

    def to_settle(self, image: ClusterImage, broker: int, now_ms: int) -> tuple[Led, ...]:
        """The leaderships that `broker` must settle."""
        self._forget(image, now_ms)
        return tuple(
            Led(stream_id, number, request.leader_epoch)
            for (stream_id, number), request in self._requests.items()
            if request.leader == broker and request.settled_ms is None
        )

    def settled(self, broker: int, settled: Iterable[Led], now_ms: int) -> None:
        """The registered run of `broker` reports that it has settled these."""
        for one in settled:
            request = self._requests.get((one.stream_id, one.partition))
            if request is not None and (request.leader, request.leader_epoch) == (broker, one.leader_epoch):
                request.settled_ms = now_ms

    def _is_due(
        self, image: ClusterImage, change: PartitionChange, now_ms: int, open_requests: Counter[int]
    ) -> bool:
        key = (change.stream_id, change.partition)
        partition = image.partition(*key)
        if partition is None or partition.leader is None or change.leader in (UNSET, None, partition.leader):
            return True
        request = self._requests.get(key)
        if request is None:
            if open_requests[partition.leader] < SETTLING_MAX:
                open_requests[partition.leader] += 1
                self._requests[key] = _SettleRequest(partition.leader, partition.leader_epoch, now_ms, now_ms)
            return False
        request.asked_ms = now_ms
        return request.settled_ms is not None or now_ms - request.since_ms >= SETTLE_MS_MAX

    def _forget(self, image: ClusterImage, now_ms: int) -> None:
        over = [
            key
            for key, request in self._requests.items()
            if (partition := image.partition(*key)) is None or not _holds(request, partition, now_ms)
        ]
        for key in over:
            del self._requests[key]


def _holds(request: _SettleRequest, partition: PartitionImage, now_ms: int) -> bool:
    return (
        (request.leader, request.leader_epoch) == (partition.leader, partition.leader_epoch)
        and now_ms - request.asked_ms < FORGET_MS
        and (request.settled_ms is None or now_ms - request.settled_ms < SETTLED_MS)
    )
