"""One end of a simulated connection, as the event loop and the protocol of its process see it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from simulator.kernel.loop import ProcessLoop
from simulator.kernel.wire import Machine, Wire
from simulator.world import MS

WINDOW_BYTES: Final = 64 << 10
"""How many bytes may be on their way or wait at the other end. No more are sent before the other end takes
some."""

HIGH_BYTES: Final = 64 << 10
"""With more bytes waiting at this end, the protocol is asked to pause writing. The default of asyncio."""

READ_BYTES: Final = 64 << 10
"""The most bytes that the protocol gets at once."""

HELD_US: Final = (0, 400 * MS)
"""The time from the end of a cut until the bytes that it held back arrive."""

_FIN: Final = b""
"""Stands for the end of the stream: the other end sends no more."""


class SimTransport(asyncio.Transport):
    """One end of a connection. The rules of TCP are in the docstring of `network`."""

    def __init__(
        self,
        wire: Wire,
        machine: Machine,
        loop: ProcessLoop,
        forget: Callable[[SimTransport], None],
        heard: Callable[[bytes], None] | None,
    ) -> None:
        """`forget` is called when this end is closed; `heard` is given the bytes that are sent from here."""
        super().__init__()
        self._wire = wire
        self.machine = machine
        self.loop = loop
        self._forget = forget
        self._heard = heard
        self.peer: SimTransport | None = None
        """The other end; set once both are made."""
        self.abandoned = False
        """The machine of this end lost its power: it sends nothing more, not even a reset."""
        self._protocol: Any = None
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._window = 0
        """Bytes that were sent and that the other end has not taken yet."""
        self._arrives_us = 0
        """When the newest piece arrives. No piece overtakes it."""
        self._held: list[bytes] = []
        """Pieces that were sent into a cut, in order."""
        self._in: deque[bytes] = deque()
        self._reading = True
        self._delivering = False
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._pressed = False
        """The protocol was asked to pause writing."""
        self._closing = False
        self._over = False
        """`connection_lost` was called, or will be."""
        self._early: BaseException | bool | None = False
        """The connection ended before it had a protocol: the error, or True; False: it did not."""

    def __repr__(self) -> str:
        state = "over" if self._over else "closing" if self._closing else "open"
        return f"<SimTransport at {self.machine.name} {state} out={self._out_bytes}>"

    # --- the beginning

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        if self._early is not False:
            self._lost(self._early if isinstance(self._early, BaseException) else None)
        self._deliver_soon()

    def accepted(self, factory: Callable[[], Any]) -> None:
        """Runs in the loop of the process that listens."""
        if self._early is False:
            self.begin(factory())

    # --- of asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername" and self.peer is not None:
            return (self.peer.machine.name, 0)
        return default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._out_bytes

    def write(self, data: Any) -> None:
        if self._closing or self.loop.dead or not len(data):
            return
        if self._heard is not None:
            self._heard(bytes(data))
        self._out.append(bytes(data))
        self._out_bytes += len(data)
        self._send()
        if self._out_bytes > self._high and not self._pressed:
            self._pressed = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(bytes(part) for part in list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Closes this end after all written bytes are sent."""
        if self._closing or self.loop.dead:
            return
        self._closing = True
        self._reading = False
        if not self._out:
            self._finish()

    def abort(self) -> None:
        """Closes this end at once, and resets the other end."""
        if self.loop.dead or self._over:
            return
        self._closing = True
        self._out.clear()
        self._out_bytes = 0
        self._reset_peer()
        self._lost_soon(None)

    # --- sending

    def _send(self) -> None:
        while self._out and self._window < WINDOW_BYTES:
            data = self._out.popleft()
            self._out_bytes -= len(data)
            for piece in self._pieces(data):
                self._window += len(piece)
                self._put(piece)
        if self._closing and not self._out and not self._over:
            self._finish()

    def _pieces(self, data: bytes) -> Iterable[bytes]:
        rng = self._wire.rng
        if len(data) > 1 and rng.random() < self._wire.conditions.torn:
            at = rng.randrange(1, len(data))
            return (data[:at], data[at:])
        return (data,)

    def _put(self, piece: bytes) -> None:
        """Sends a piece to the other end."""
        wire = self._wire
        at = max(wire.world.now + wire.delay(), self._arrives_us)
        self._arrives_us = at
        wire.world.after(at - wire.world.now, lambda: self._arrived(piece))

    def _arrived(self, piece: bytes) -> None:
        peer = self.peer
        assert peer is not None
        if peer.abandoned or not peer.machine.powered:
            return
        if self._held or self._wire.is_cut(self.machine.name, peer.machine.name):
            self._held.append(piece)
        else:
            peer._take(piece)

    def mended(self) -> None:
        """All cuts have ended: the pieces that were held back are sent again."""
        if self._held:
            self._wire.world.after(self._wire.rng.randint(*HELD_US), self._release)

    def _release(self) -> None:
        peer = self.peer
        assert peer is not None
        if self._wire.is_cut(self.machine.name, peer.machine.name):
            return
        held, self._held = self._held, []
        for piece in held:
            peer._take(piece)

    def _finish(self) -> None:
        """All bytes are sent: the end of the stream follows them."""
        self._put(_FIN)
        self._lost_soon(None)

    def _taken(self, size: int) -> None:
        """The other end has taken so many bytes."""
        self._window -= size
        self._send()
        if self._pressed and self._out_bytes <= self._low and not self._over:
            self._pressed = False
            self.loop.call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self._over and not self._pressed:
            self._protocol.resume_writing()

    # --- receiving

    def _take(self, piece: bytes) -> None:
        if not self.loop.dead and not self._over:
            self._in.append(piece)
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if self._in and self._reading and not self._delivering and self._protocol is not None:
            self._delivering = True
            self.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if not self._reading or self._over or not self._in:
            return
        if self._in[0] == _FIN:
            self._in.clear()
            self._ended()
            return
        data = bytearray()
        while self._in and self._in[0] != _FIN and len(data) < READ_BYTES:
            data += self._in.popleft()
        peer = self.peer
        assert peer is not None
        peer._taken(len(data))
        self._feed(bytes(data))
        self._deliver_soon()

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        at = 0
        while at < len(data) and not self._over:
            room: memoryview = protocol.get_buffer(-1)  # type: ignore[assignment]
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            at += size
            protocol.buffer_updated(size)
            if not self._reading:
                # The protocol paused reading. It gets the rest later.
                if at < len(data):
                    self._in.appendleft(data[at:])
                    assert self.peer is not None
                    self.peer._window += len(data) - at
                return

    def _ended(self) -> None:
        """The other end sends no more. This end closes, as asyncio does by default."""
        protocol = self._protocol
        if not protocol.eof_received():
            self._closing = True
            self._lost_soon(None)

    # --- the end

    def _reset_peer(self) -> None:
        peer = self.peer
        assert peer is not None
        wire = self._wire
        if wire.is_cut(self.machine.name, peer.machine.name):
            return  # The other end notices the silence.
        at = wire.world.now + wire.delay()
        if wire.rng.random() < 0.5:
            # The reset arrives after the bytes that were sent before it. Otherwise it overtakes them, and
            # they are lost.
            at = max(at, self._arrives_us)
        wire.world.after(at - wire.world.now, peer.was_reset)

    def was_reset(self) -> None:
        if not self.loop.dead and not self._over:
            self._lost_soon(ConnectionResetError("the other end reset the connection"))

    def process_ended(self, *, powered: bool) -> None:
        """The process of this end was killed, or its machine lost its power."""
        self._over = self._closing = True
        self._out.clear()
        if powered:
            self._reset_peer()
        else:
            self.abandoned = True

    def _lost_soon(self, error: BaseException | None) -> None:
        if self._over:
            return
        self._over = self._closing = True
        self._forget(self)
        if self._protocol is None:
            self._early = error if error is not None else True
            self._over = False
        else:
            self.loop.call_soon(self._lost, error)

    def _lost(self, error: BaseException | None) -> None:
        self._over = True
        self._in.clear()
        self._protocol.connection_lost(error)
