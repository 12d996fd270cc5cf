"""Settles leaderships before they move to another broker, so that clients know the outcome of appends (N5).

A partition that is handed over takes no more appends of clients, and its earlier appends are committed before
the next leader begins. Before a stop, this applies to every partition that other brokers can lead. Otherwise
it applies to the partitions that the controller names (`core.metadata.controller.handovers`), and the
controller is told when they have settled. Appends from NATS are accepted until the leadership ends: their
publishers ask again or want no answer, and would miss the records that were refused in the gap.

Neighbours: `partition` refuses clients' appends meanwhile; `membership.session` receives the controller's
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.controller.handovers import SETTLED_MS, Led
from tidelog_broker.replication.replica import Key
from tidelog_broker.writing.partition import Partition

log = structlog.get_logger(__name__)

SETTLE_SECONDS_MAX: Final = 1.5
"""How long a leadership has to settle; less than the controller waits (`SETTLE_MS_MAX`)."""

STOP_SECONDS_MAX: Final = 2.0
"""How long the leaderships have to settle before a stop."""

LOOK_SECONDS: Final = 0.002

HOLD_SECONDS: Final = 2 * SETTLED_MS / 1000
"""How long appends are refused after the report to the controller, which acts on it at once or never."""


@dataclass(slots=True, eq=False)
class _Leaving:
    partition: Partition
    leader_epoch: int
    taken: int
    """All earlier appends are written when the partition's `written_count` has this value."""
    end: int | None = None
    """All earlier appends are committed when the high watermark is here; None: not all are written yet."""

    @classmethod
    def begin(cls, partition: Partition) -> _Leaving:
        partition.leaving = True
        return cls(partition, partition.leader_epoch, partition.taken)

    @property
    def led(self) -> Led:
        return Led(*self.partition.key, self.leader_epoch)

    @property
    def leads(self) -> bool:
        return self.partition.leads and self.partition.leader_epoch == self.leader_epoch

    def has_settled(self) -> bool:
        if self.end is None and self.partition.written_count >= self.taken:
            self.end = self.partition.log.end_offset
        return self.end is not None and self.partition.high_watermark >= self.end


class HandingOver:
    """Settles leaderships of this broker before they move. Runs on one event loop."""

    def __init__(
        self, partitions: Mapping[Key, Partition], tell: Callable[[Sequence[Led]], Awaitable[None]]
    ) -> None:
        """`tell` reports settled leaderships to the controller; raises `TidelogError`."""
        self._loop = asyncio.get_running_loop()
        self._partitions = partitions
        self._tell = tell
        self._under_way: dict[Led, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stopping = False

    def __repr__(self) -> str:
        return f"<HandingOver under_way={len(self._under_way)} stopping={self._stopping}>"

    async def everything(self) -> None:
        """Before a stop, settles all leaderships that other brokers can take over.

        Returns when they are settled, or after `STOP_SECONDS_MAX`.
        """
        self._stopping = True
        left = [
            _Leaving.begin(one)
            for one in self._partitions.values()
            if one.leads and len(one.replica.placed.isr) > 1
        ]
        deadline = self._loop.time() + STOP_SECONDS_MAX
        while left := [one for one in left if one.leads and not one.has_settled()]:
            if self._loop.time() >= deadline:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def wished(self, wishes: Iterable[Led]) -> None:
        """The controller asks to settle these leaderships; it repeats a request until it is done or over."""
        leaving = []
        for wish in wishes:
            partition = self._partitions.get((wish.stream_id, wish.partition))
            if partition is None or not partition.leads or partition.leader_epoch != wish.leader_epoch:
                continue
            if wish not in self._under_way:
                self._under_way[wish] = None
                leaving.append(_Leaving.begin(partition))
        if leaving:
            self._begin(self._settle(leaving))

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="handing over")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _settle(self, leaving: Sequence[_Leaving]) -> None:
        """Reports each leadership as soon as it has settled, without waiting for the slowest."""
        left, deadline = list(leaving), self._loop.time() + SETTLE_SECONDS_MAX
        try:
            while left and self._loop.time() < deadline:
                settled: list[_Leaving] = []
                waiting: list[_Leaving] = []
                for one in left:
                    (settled if not one.leads or one.has_settled() else waiting).append(one)
                left = waiting
                if settled:
                    self._begin(self._release(settled))
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._go_on(left)

    async def _release(self, settled: Sequence[_Leaving]) -> None:
        try:
            led = [one.led for one in settled if one.leads]
            if led:
                await self._tell(led)
                await asyncio.sleep(HOLD_SECONDS)
        except TidelogError as error:
            log.info(
                "the broker could not tell the controller which leaderships are settled", reason=str(error)
            )
            if not error.definite:
                await asyncio.sleep(HOLD_SECONDS)
        finally:
            self._go_on(settled)

    def _go_on(self, leaving: Iterable[_Leaving]) -> None:
        """Partitions that this broker still leads take appends again."""
        for one in leaving:
            self._under_way.pop(one.led, None)
            if one.leads and not self._stopping:
                one.partition.leaving = False
