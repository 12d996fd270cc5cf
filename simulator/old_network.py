"""The network between simulated brokers: datagrams and connections, and what goes wrong with both.

*Datagrams* (Raft, heartbeats, reports, requests and answers) are delayed, lost, doubled and overtaken:
more than TCP does, and what every protocol of ours that uses them must bear. *Connections*
(replication, clients) keep their order and lose nothing until they break; then each end hears of it at
its own time, what was on its way may arrive before that or not at all, and the next connection may be
open before the old one's last words have been heard.

A cut has a direction. What is sent into it is lost; a connection that meets one is dead, and its ends
notice by silence. Whoever dials a broker that does not run is refused; whoever dials into a cut hears
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from simulator.world import MS, World

SILENCE_US: Final = 500 * MS
"""How long an end of a dead connection takes to notice (`peer_silence_max`)."""

Address = int
"""Of a broker; clients have negative ones."""


@dataclass
class Conditions:
    """What the network does to what is sent, apart from cuts. Probabilities per message."""

    delay_us: tuple[int, int] = (50, 300)
    """Shortest and longest."""
    slow: float = 0.0
    """So many take up to thousands of times as long."""
    lost: float = 0.0
    doubled: float = 0.0


class Host(Protocol):
    """Who is at an address."""

    @property
    def running(self) -> bool: ...

    @property
    def run(self) -> int:
        """Counts the starts of its process: what was sent to an earlier one does not arrive."""


class Anywhere:
    """A host that never ends: a client's."""

    running = True
    run = 0


class End(Protocol):
    """Who uses an end of a connection."""

    def received(self, connection: Connection, message: object) -> None: ...

    def broken(self, connection: Connection, *, refused: bool) -> None:
        """It is over. `refused`: the other end's process is gone, and its machine says so."""


class Network:
    """See the module."""

    def __init__(self, world: World, conditions: Conditions) -> None:
        self.world = world
        self.conditions = conditions
        self.hosts: dict[Address, Host] = {}
        self._rng = world.rng_of("network")
        self._cuts: dict[tuple[Address, Address], None] = {}
        self._connections: dict[Connection, None] = {}
        self._arrives: dict[tuple[Address, Address], int] = {}
        """When the newest of what must not be overtaken arrives."""
        self.sent = 0
        self.lost = 0

    # --- faults

    def cut(self, source: Address, target: Address) -> None:
        """Nothing gets from one to the other."""
        self._cuts[source, target] = None
        for connection in list(self._connections):
            if connection.joins(source, target):
                connection.cut = True
                connection.die(SILENCE_US)

    def mend(self) -> None:
        self._cuts.clear()

    def is_cut(self, source: Address, target: Address) -> bool:
        return (source, target) in self._cuts

    @property
    def cuts(self) -> list[tuple[Address, Address]]:
        return list(self._cuts)

    def ended(self, address: Address) -> None:
        """A process ended: the ends that its connections have elsewhere are told by its machine."""
        for connection in list(self._connections):
            if address in (connection.client, connection.server):
                connection.die(0)

    # --- datagrams

    def send(
        self, source: Address, target: Address, deliver: Callable[[], None], *, whole: bool = False
    ) -> None:
        """Has `deliver` happen at the target by and by: not at all, once or twice.

        `whole`: not twice, and not before what was sent so earlier.
        """
        self.sent += 1
        host = self.hosts[target]
        run = host.run
        if self.is_cut(source, target) or self._rng.random() < self.conditions.lost:
            self.lost += 1
            return

        def arrive() -> None:
            if host.running and host.run == run and not self.is_cut(source, target):
                deliver()

        at = self.world.now + self._delay()
        if whole:
            at = self._arrives[source, target] = max(at, self._arrives.get((source, target), 0))
        self.world.after(at - self.world.now, arrive)
        if not whole and self._rng.random() < self.conditions.doubled:
            self.world.after(self._delay(), arrive)

    def _delay(self) -> int:
        low, high = self.conditions.delay_us
        delay = self._rng.randint(low, high)
        if self.conditions.slow and self._rng.random() < self.conditions.slow:
            delay *= self._rng.choice((self._rng.randint(2, 100), self._rng.randint(100, 5_000)))
        return delay

    # --- connections

    def dial(
        self,
        client: Address,
        server: Address,
        opened: Callable[[Connection], End],
        accept: Callable[[Connection], End],
        failed: Callable[[bool], None],
    ) -> None:
        """Opens a connection: `accept` at the server, then `opened` at the client; or `failed(refused)`."""
        host, run = self.hosts[server], self.hosts[client].run
        if self.is_cut(client, server) or self.is_cut(server, client):
            self._to(client, run, SILENCE_US, lambda: failed(False))
            return

        def arrive() -> None:
            if not host.running:
                self._to(client, run, self._delay(), lambda: failed(True))
                return
            connection = Connection(self, client, server)
            self._connections[connection] = None
            connection.ends[server] = accept(connection)
            self._to(client, run, self._delay(), lambda: answer(connection))

        def answer(connection: Connection) -> None:
            if connection.dead:
                failed(False)
            else:
                connection.ends[client] = opened(connection)

        self.world.after(self._delay(), arrive)

    def _to(self, address: Address, run: int, delay_us: int, action: Callable[[], None]) -> None:
        """At a host, unless its process ends before."""
        host = self.hosts[address]
        self.world.after(delay_us, lambda: action() if host.running and host.run == run else None)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)


class Connection:
    """One connection, of the two runs that it joins."""

    def __init__(self, network: Network, client: Address, server: Address) -> None:
        self._network = network
        self.client = client
        self.server = server
        self.ends: dict[Address, End] = {}
        self.dead = False
        self.cut = False
        """It died because nothing came through any more."""
        self._runs = {address: network.hosts[address].run for address in (client, server)}
        self._arrives = {client: 0, server: 0}
        """When the last message to each end arrives: nothing overtakes it."""

    def __repr__(self) -> str:
        return f"<Connection {self.client} → {self.server}{' dead' if self.dead else ''}>"

    def joins(self, one: Address, other: Address) -> bool:
        return (one, other) in ((self.client, self.server), (self.server, self.client))

    def other(self, address: Address) -> Address:
        return self.server if address == self.client else self.client

    def send(self, source: Address, message: object) -> None:
        """Sends to the other end; what meets a break is lost."""
        if self.dead:
            return
        network, target = self._network, self.other(source)
        network.sent += 1
        at = max(network.world.now + network._delay(), self._arrives[target])
        self._arrives[target] = at

        def arrive() -> None:
            host, end = network.hosts[target], self.ends.get(target)
            if end is not None and host.running and host.run == self._runs[target]:
                end.received(self, message)

        network.world.after(at - network.world.now, arrive)

    def close(self, address: Address) -> None:
        """One end is done with it: it hears nothing more, the other one hears of it."""
        self.ends.pop(address, None)
        self.die(0)

    def die(self, notice_us: int) -> None:
        """Breaks it. What is on its way may still arrive; the ends hear of it, each at its own time."""
        if self.dead:
            return
        self.dead = True
        network = self._network
        network.forget(self)
        for address in (self.client, self.server):
            delay = max(0, self._arrives[address] - network.world.now)
            if network._rng.random() < 0.5:
                # The break overtakes what was on its way.
                delay = network._rng.randint(0, delay)
            network._to(address, self._runs[address], delay + notice_us, lambda at=address: self._tell(at))  # type: ignore[misc]

    def _tell(self, address: Address) -> None:
        end = self.ends.pop(address, None)
        if end is not None:
            host = self._network.hosts[self.other(address)]
            gone = not host.running or host.run != self._runs[self.other(address)]
            cut = self._network.is_cut(address, self.other(address))
            end.broken(self, refused=gone and not host.running and not cut)


def random_conditions(rng: random.Random) -> Conditions:
    """A network of some kind: swarm testing picks which of its faults a run has at all."""
    return Conditions(
        delay_us=rng.choice([(20, 80), (50, 300), (200, 3 * MS)]),
        slow=rng.choice([0.0, 0.0, 0.01, 0.1]),
        lost=rng.choice([0.0, 0.0, 0.01, 0.1]),
        doubled=rng.choice([0.0, 0.0, 0.02, 0.1]),
    )
