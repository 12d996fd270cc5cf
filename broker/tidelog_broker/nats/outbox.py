"""What waits to be sent: gathered per turn of the event loop, limited, kept between links.

It exists so that ten thousand acknowledgements become one ``send``, and so that a server that
reads slowly, or is away, costs a bounded amount of memory. ``connection`` attaches the ``transport``
of the moment.
"""

import asyncio

from tidelog_broker.nats.counters import Counters
from tidelog_broker.nats.errors import ConnectionClosed, PayloadTooLarge, WriteBufferFull
from tidelog_broker.nats.transport import NatsTransport


class _Command(bytes):
    """A control line. It was meant for one link: the greeting of the next says what still holds."""


class Outbox:
    """Bytes on their way to whichever link is up."""

    def __init__(self, bytes_max: int, counters: Counters) -> None:
        self._bytes_max = bytes_max
        self._frames: list[bytes] = []
        """Whole protocol elements each, so that a new link starts between two of them."""
        self._frames_bytes = 0
        self._link: NatsTransport | None = None
        self._scheduled = False
        self._closed = False
        self._waiting: list[asyncio.Future[None]] = []
        self._counters = counters

    def __repr__(self) -> str:
        return f"<Outbox {self.size}/{self._bytes_max} bytes attached={self._link is not None}>"

    @property
    def size(self) -> int:
        """Bytes not yet sent: ours, and what the link has taken."""
        return self._frames_bytes + (self._link.unsent_bytes if self._link is not None else 0)

    def write(self, frames: bytes) -> None:
        """Queue whole protocol elements, all or nothing.

        Raises WriteBufferFull when they do not fit now, PayloadTooLarge when they never will.
        """
        if self._closed:
            raise ConnectionClosed("this connection to NATS was closed")
        if self.size + len(frames) > self._bytes_max:
            self._counters.writes_refused += 1
            if len(frames) > self._bytes_max:
                raise PayloadTooLarge(
                    f"{len(frames)} bytes at once; the write buffer takes at most {self._bytes_max}"
                )
            waiting = self.size
            raise WriteBufferFull(f"{waiting} bytes wait to be sent to NATS; the limit is {self._bytes_max}")
        self._queue(frames)

    def command(self, line: bytes) -> None:
        """Queue a control line for this link, which is small and must not be refused."""
        self._queue(_Command(line))

    def _queue(self, frames: bytes) -> None:
        self._frames.append(frames)
        self._frames_bytes += len(frames)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Give the link what there is, unless it has enough."""
        if self._link is not None and not self._link.write_paused:
            self.hand_over()

    def hand_over(self) -> None:
        """Give the link what there is; the last thing before it is closed."""
        link = self._link
        if link is None or link.lost.done() or not self._frames:
            return
        data = b"".join(self._frames)
        self._frames.clear()
        self._frames_bytes = 0
        self._counters.bytes_written += len(data)
        link.write(data)

    def attach(self, link: NatsTransport) -> None:
        """Send to this link from now on."""
        self._link = link
        self.flush()
        self.wake()

    def detach(self) -> None:
        """Keep what comes until there is a link again."""
        self._link = None
        self._frames = [frame for frame in self._frames if not isinstance(frame, _Command)]
        self._frames_bytes = sum(map(len, self._frames))
        self.wake()

    def close(self) -> None:
        """Refuse everything from now on and forget what is left."""
        self._closed = True
        self._link = None
        self._frames.clear()
        self._frames_bytes = 0
        self.wake()

    def wake(self) -> None:
        """Let those go on who wait for room, if there is some."""
        if self._closed or self.size <= self._bytes_max // 2:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def room(self) -> None:
        """Wait until at least half of the buffer is free. Raises ConnectionClosed."""
        while self.size > self._bytes_max // 2 and not self._closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
        if self._closed:
            raise ConnectionClosed("this connection to NATS was closed")
