"""What happens to NATS servers and their links: they end, stand still, and are cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulator.nats.server import ServerMachine, host_of
from simulator.node import host_of as broker_host
from simulator.world import MS, SECOND

if TYPE_CHECKING:
    from simulator.nats.side import NatsSide
    from simulator.run import Simulation

STALL_US: Final = (50 * MS, 4 * SECOND)

Fault = tuple[float, Callable[[], None]]
"""How often per second, and what."""


class NatsWeather:
    """See the module."""

    def __init__(self, run: Simulation, side: NatsSide) -> None:
        self._run = run
        self._side = side
        self._rng = run.world.rng_of("nats faults")

    def faults(self) -> tuple[Fault, ...]:
        plan = self._run.plan.nats
        if plan is None:
            return ()
        return (plan.kills, self._kill), (plan.cuts, self._cut), (plan.stalls, self._stall)

    def _up(self) -> ServerMachine | None:
        up = [server for server in self._side.servers if server.process is not None]
        return self._rng.choice(up) if up else None

    def _kill(self) -> None:
        server = self._up()
        if server is not None:
            server.kill(power=self._rng.random() < 0.3)
            self._run.checks.mark("NATS server ended")
            assert self._run.plan.nats is not None
            self._run.world.after(
                self._rng.randint(*self._run.plan.nats.down_us), lambda: self._side.start(server)
            )

    def _stall(self) -> None:
        server = self._up()
        if server is not None:
            self._run.world.tell(f"{host_of(server.number)} stands still")
            server.stall(self._run.world.now + self._rng.randint(*STALL_US))

    def _cut(self) -> None:
        run, rng = self._run, self._rng
        server = host_of(rng.choice(self._side.servers).number)
        brokers = [broker_host(broker) for broker in sorted(run.brokers)]
        publishers = [publisher.machine.name for publisher in self._side.publishers]
        servers = [host_of(other.number) for other in self._side.servers]
        others = rng.choice(([rng.choice(brokers)], [rng.choice(publishers or brokers)], servers, brokers))
        one_way = run.plan.one_way and rng.random() < 0.5
        run.world.tell(f"cut {others} off {server}{' one way' if one_way else ''}")
        run.checks.mark("NATS cut off")
        towards = rng.random() < 0.5
        for other in others:
            if other == server:
                continue
            if towards or not one_way:
                run.network.wire.cut(other, server)
            if not towards or not one_way:
                run.network.wire.cut(server, other)
        # A partition of the brokers ends with it, or it with that: there is one network.
        run.world.after(rng.randint(*run.plan.cut_us), run.faults.network.mend)
