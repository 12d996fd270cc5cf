"""The network of a run: TCP between simulated machines, and what goes wrong with it.

What a connection promises here is what TCP promises: bytes come in order, once, or not at all. They come in
pieces of any size, late, and only as fast as the other end takes them. What is lost on the way is sent again,
so it comes later still.

A *cut* has a direction, and holds back what is sent into it. A dial into it gets no answer. After it
everything that was held back arrives, if both ends are still there to take it.

A process that was *killed* leaves a machine that speaks for it: its connections are reset, and who dials is
refused. A machine *without power* says nothing: its peers notice by silence, and are reset when it is back.

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
"""Name of a machine, and port."""

Observer = Callable[[bytes], None]
"""Is given what one end of a connection sends, in order."""

Tap = Callable[[str, Address], tuple[Observer | None, Observer | None]]
"""From whom to whom a connection is: who hears what its dialer sends, and who what the other end does."""

DIAL_AGAIN_US: Final = SECOND
"""A dial that nothing answers is repeated so often, until its caller has had enough."""

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
    """What the kernel of a machine does for one process on it: the process's end of the network."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self.machine = machine
        self.loop: ProcessLoop | None = None
        """Of the process; set once both are made."""

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """As `loop.create_connection`: raises ConnectionRefusedError; or waits until it is cancelled."""
        loop = self.loop
        assert loop is not None
        dialed: asyncio.Future[SimTransport] = loop.create_future()
        self._network.dial(self, (host, port), dialed)
        transport = await dialed
        protocol = factory()
        transport.begin(protocol)
        return transport, protocol

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Listener:
        """As `loop.create_server`: port 0 takes a free one."""
        return self._network.listen(self, factory, port)


class Network:
    """See the module."""

    def __init__(self, world: World, conditions: Conditions, tap: Tap | None = None) -> None:
        """`tap` hears what is sent over the connections that it wants to hear."""
        self.world = world
        self.wire = Wire(world, conditions)
        self._tap = tap
        self.machines: dict[str, Machine] = {}
        self.listeners: dict[Address, Listener] = {}
        self._ends: dict[SimTransport, None] = {}
        """All ends of connections of processes that live."""
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
        """A process has ended; its machine says so to whoever has to do with it, if it has power."""
        for address, listener in list(self.listeners.items()):
            if listener.owner is sockets:
                del self.listeners[address]
        for end in [one for one in self._ends if one.loop is sockets.loop]:
            self.forget(end)
            end.process_ended(powered=sockets.machine.powered)

    def power_is_back(self, machine: Machine) -> None:
        """A machine that knows nothing of its connections of before resets them."""
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
        """Opens a connection; `dialed` is done with this end, or with an OSError. It may be cancelled."""
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
