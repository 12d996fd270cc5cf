"""A simulated leader settles what it has before another one leads by plan (N5).

The controller wishes for it (`core.metadata.handovers`), or the broker is told to stop. As
`runtime.handing_over` does: nothing more is taken of producers, and when all there is is committed, the
controller is told. Neighbours: `replica` refuses meanwhile, `asking` carries the words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulator.world import MS, SECOND
from tidelog_broker.core.metadata.handovers import SETTLED_MS, Led

if TYPE_CHECKING:
    from simulator.broker import Broker
    from simulator.replica import Replica

SETTLE_US: Final = 3 * SECOND // 2
"""How long a leadership has for it."""

HOLD_US: Final = 2 * SETTLED_MS * MS
"""How long it takes nothing after the controller was told."""

STOP_US: Final = 2 * SECOND
"""How long a broker waits for all of them before it says that it stops."""


@dataclass(slots=True, eq=False)
class _Leaving:
    replica: Replica
    led: Led
    over_us: int
    """Then it takes appends again."""
    told: bool = False

    @property
    def leads(self) -> bool:
        role = self.replica.role
        return self.replica.leads and role is not None and role.leader_epoch == self.led.leader_epoch

    @property
    def settled(self) -> bool:
        role = self.replica.role
        return role is not None and role.high_watermark >= self.replica.log.end_offset


class Settling:
    """See the module. Of one run of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._under_way: dict[Led, _Leaving] = {}
        self._stop_us: int | None = None
        """It is told to stop, and waits until then at most."""
        self.done = False
        """It may say that it stops."""

    def wished(self, wishes: Iterable[Led]) -> None:
        for wish in wishes:
            replica = self._broker.replicas.get((wish.stream_id, wish.partition))
            if replica is not None and wish not in self._under_way:
                self._begin(replica, wish)

    def everything(self) -> None:
        """Before a stop."""
        self._stop_us = self._broker.world.now + STOP_US
        for replica in self._broker.replicas.values():
            role = replica.role
            if role is not None and replica.leads and len(replica.placed.isr) > 1:
                self._begin(replica, Led(*replica.key, role.leader_epoch))

    def _begin(self, replica: Replica, wish: Led) -> None:
        leaving = _Leaving(replica, wish, self._broker.world.now + SETTLE_US)
        if leaving.leads:
            replica.leaving = True
            self._under_way[wish] = leaving

    def look(self) -> None:
        """At every tick."""
        now, stopping = self._broker.world.now, self._stop_us is not None
        for leaving in list(self._under_way.values()):
            if not leaving.leads:
                del self._under_way[leaving.led]
            elif not leaving.told and leaving.settled:
                leaving.told, leaving.over_us = True, now + HOLD_US
                self._broker.checks.settled(leaving.replica)
                if not stopping:
                    self._broker.asking.settled((leaving.led,))
            elif now >= leaving.over_us and not stopping:
                leaving.replica.leaving = False
                self._broker.checks.mark("N5 goes on")
                del self._under_way[leaving.led]
        waits = any(not leaving.told for leaving in self._under_way.values())
        if self._stop_us is not None and (not waits or now >= self._stop_us):
            self.done = True
