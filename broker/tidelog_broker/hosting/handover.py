"""Leaderships that are about to go to another broker: nobody who wrote here is left in doubt (N5).

A partition that is handed over takes no more appends of clients, and what it has is committed before the
next leader begins. Before a stop that is every partition that others can lead; otherwise those that the
controller wishes for (`core.metadata.controller.handovers`), which are told to it when they have settled.
What comes from NATS is taken to the end: its publishers ask again, or want no answer, and would miss what
the gap cost.

Neighbours: `partition` refuses what comes meanwhile; `membership.session` hears the wishes.
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
"""The same before a stop."""

LOOK_SECONDS: Final = 0.002

HOLD_SECONDS: Final = 2 * SETTLED_MS / 1000
"""How long appends are refused after the controller was told; it acts at once, or not at all."""


@dataclass(slots=True, eq=False)
class _Leaving:
    partition: Partition
    leader_epoch: int
    taken: int
    """What came before is written when the partition has written so many."""
    end: int | None = None
    """And committed when the high watermark is here."""

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
    """Settles leaderships of this broker before they move. Of one event loop."""

    def __init__(
        self, partitions: Mapping[Key, Partition], tell: Callable[[Sequence[Led]], Awaitable[None]]
    ) -> None:
        """`tell`: the controller, that these have settled; raises `TidelogError`."""
        self._loop = asyncio.get_running_loop()
        self._partitions = partitions
        self._tell = tell
        self._under_way: dict[Led, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stopping = False

    def __repr__(self) -> str:
        return f"<HandingOver under_way={len(self._under_way)} stopping={self._stopping}>"

    async def everything(self) -> None:
        """Before a stop: of what others can lead. Returns when it is settled, or after `STOP_SECONDS_MAX`."""
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
        """The controller wishes that these be settled; a wish is repeated until it is fulfilled, or over."""
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
        """Each is told of when it has settled, and does not wait for the slowest."""
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
            log.info("the controller could not be told which leaderships are settled", reason=str(error))
            if not error.definite:
                await asyncio.sleep(HOLD_SECONDS)
        finally:
            self._go_on(settled)

    def _go_on(self, leaving: Iterable[_Leaving]) -> None:
        """What is still led here takes appends again."""
        for one in leaving:
            self._under_way.pop(one.led, None)
            if one.leads and not self._stopping:
                one.partition.leaving = False
