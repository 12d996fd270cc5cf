"""The network of a run: TCP between simulated machines, with delays, losses, cuts and resets.

A connection promises what TCP promises: bytes arrive in order, once, or not at all. They arrive in pieces of
any size, late, and only as fast as the other end takes them. Lost bytes are sent again, so they arrive later.

A *cut* has a direction, and holds back the bytes that are sent into it. A dial into it gets no answer. When
it ends, all bytes that it held back arrive, if both ends still exist.

When a process is *killed*, its machine resets its connections and refuses dials. A machine *without power* is
silent: its peers notice the silence, and get resets when the machine is back.

Neighbours: `wire` delays, loses and cuts, `transports` are the ends of connections as event loops see them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from simulator.kernel.loop import ProcessLoop
from simulator.kernel.transports import SimTransport
from simulator.kernel.wire import Conditions, Machine, Wire
from simulator.world import SECOND, World

Address = tuple[str, int]
"""The name of a machine, and a port."""

Observer = Callable[[bytes], None]
"""Is called with the bytes that one end of a connection sends, in order."""

Tap = Callable[[str, Address], tuple[Observer | None, Observer | None]]
"""Is called with the dialing machine and the dialed address of a connection. Returns the observer of what the
dialer sends, and that of what the other end sends; None: no observer."""

DIAL_AGAIN_US: Final = SECOND
"""A dial without an answer is repeated after this time, until its caller cancels it."""

FIRST_PORT: Final = 40_000


class Listener:
    """An open port. What `loop.create_server` returns."""

    def __init__(self, network: Network, sockets: Sockets, factory: Callable[[], Any], port: int) -> None:
        self._network = network
        self.owner = sockets
        self.factory = factory
        self._address = (sockets.machine.name, port)

    @property
    def sockets(self) -> list[Listener]:
        return [self]

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        self._network.listeners.pop(self._address, None)

    async def wait_closed(self) -> None:
        return


class Sockets:
    """The sockets of one process."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self.machine = machine
        self.loop: ProcessLoop | None = None
        """The loop of the process; set once both exist."""

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """As `loop.create_connection`. Raises ConnectionRefusedError. Without an answer it waits for ever."""
        loop = self.loop
        assert loop is not None
        dialed: asyncio.Future[SimTransport] = loop.create_future()
        self._network.dial(self, (host, port), dialed)
        transport = await dialed
        protocol = factory()
        transport.begin(protocol)
        return transport, protocol

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Listener:
        """As `loop.create_server`. Port 0 takes a free port."""
        return self._network.listen(self, factory, port)


class Network:
    """All machines, ports and connections of a run."""

    def __init__(self, world: World, conditions: Conditions, tap: Tap | None = None) -> None:
        """`tap` chooses the observers of each connection."""
        self.world = world
        self.wire = Wire(world, conditions)
        self._tap = tap
        self.machines: dict[str, Machine] = {}
        self.listeners: dict[Address, Listener] = {}
        self._ends: dict[SimTransport, None] = {}
        """All ends of connections of living processes."""
        self._ports = FIRST_PORT

    def machine(self, name: str) -> Machine:
        return self.machines.setdefault(name, Machine(name))

    # --- faults

    def mend(self) -> None:
        """Ends all cuts: the bytes that they held back arrive after a while."""
        self.wire.join()
        for end in list(self._ends):
            end.mended()

    def ended(self, sockets: Sockets) -> None:
        """Closes the ports and connections of a process that ended. Its machine resets them if it has
        power."""
        for address, listener in list(self.listeners.items()):
            if listener.owner is sockets:
                del self.listeners[address]
        for end in [one for one in self._ends if one.loop is sockets.loop]:
            self.forget(end)
            end.process_ended(powered=sockets.machine.powered)

    def power_is_back(self, machine: Machine) -> None:
        """Resets the connections that the machine had before it lost its power."""
        machine.powered = True
        for end in list(self._ends):
            if end.peer is not None and end.peer.abandoned and end.peer.machine is machine:
                end.peer.abandoned = False
                self.world.after(self.wire.delay(), end.was_reset)

    # --- connections

    def listen(self, sockets: Sockets, factory: Callable[[], Any], port: int) -> Listener:
        if port == 0:
            self._ports += 1
            port = self._ports
        address = (sockets.machine.name, port)
        assert address not in self.listeners, f"{address} is in use"
        listener = self.listeners[address] = Listener(self, sockets, factory, port)
        return listener

    def dial(self, sockets: Sockets, address: Address, dialed: asyncio.Future[SimTransport]) -> None:
        """Opens a connection. `dialed` gets this end, or an OSError; its owner may cancel it."""
        source, target = sockets.machine, self.machines.get(address[0])
        loop = sockets.loop
        assert loop is not None

        def arrive() -> None:
            if dialed.done() or loop.dead:
                return
            there = target is not None and target.powered
            if (
                not there
                or self.wire.is_cut(source.name, address[0])
                or self.wire.is_cut(address[0], source.name)
            ):
                self.world.after(DIAL_AGAIN_US, arrive)
                return
            listener = self.listeners.get(address)
            if listener is None:
                self.world.after(self.wire.delay(), lambda: _soon(loop, refuse))
                return
            taps = (None, None) if self._tap is None else self._tap(source.name, address)
            mine, theirs = self._end(sockets, taps[0]), self._end(listener.owner, taps[1])
            mine.peer, theirs.peer = theirs, mine
            self._ends[mine] = self._ends[theirs] = None
            theirs.loop.call_soon(theirs.accepted, listener.factory)
            self.world.after(self.wire.delay(), lambda: _soon(loop, lambda: answer(mine)))

        def refuse() -> None:
            if not dialed.done():
                dialed.set_exception(ConnectionRefusedError(f"nobody listens at {address[0]}:{address[1]}"))

        def answer(mine: SimTransport) -> None:
            if dialed.done():
                mine.abort()
            else:
                dialed.set_result(mine)

        self.world.after(self.wire.delay(), arrive)

    def _end(self, sockets: Sockets, heard: Observer | None) -> SimTransport:
        assert sockets.loop is not None
        return SimTransport(self.wire, sockets.machine, sockets.loop, self.forget, heard)

    def forget(self, end: SimTransport) -> None:
        self._ends.pop(end, None)


def _soon(loop: ProcessLoop, call: Callable[[], None]) -> None:
    loop.call_soon(call)
