"""One Produce call per broker, shared by all partitions of a producer that it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog._connecting.broker_channel import CONNECT_S, BrokerChannel
from tidelog._connecting.channels import Channels
from tidelog._producing.stream import ProduceStream
from tidelog.errors import ConnectionLost, TidelogError


class ProduceCalls:
    """The Produce calls by address, opened when they are first needed."""

    __slots__ = ("_calls", "_channels", "_make", "_timeout_s")

    def __init__(
        self, channels: Channels, make: Callable[[BrokerChannel], ProduceStream], *, timeout_s: float
    ) -> None:
        self._channels = channels
        self._make = make
        """Makes the call to a broker, which is not open yet."""
        self._timeout_s = timeout_s
        self._calls: dict[str, asyncio.Task[ProduceStream]] = {}
        """By address; the tasks that open calls, also after they have."""

    async def to(self, address: str, tries: int) -> ProduceStream:
        """The open call to a broker. The wait for it grows with the number of failed `tries`.

        Raises `Unavailable` or `ConnectionLost`.
        """
        opening = self._calls.get(address)
        if opening is None:
            timeout_s = min(CONNECT_S * (tries + 1), self._timeout_s)
            opening = asyncio.create_task(self._open(address, timeout_s), name=f"open {address}")
            self._calls[address] = opening
        try:
            stream = await asyncio.shield(opening)
        except TidelogError:
            if self._calls.get(address) is opening:
                del self._calls[address]
            raise
        if stream.closed:
            raise ConnectionLost(f"the connection to {address} broke again")
        return stream

    async def _open(self, address: str, timeout_s: float) -> ProduceStream:
        stream = self._make(self._channels.to(address))
        await stream.open(timeout_s)
        return stream

    def forget(self, stream: ProduceStream) -> None:
        """Drops a call that has ended."""
        opening = self._calls.get(stream.address)
        if (
            opening is not None
            and opening.done()
            and not opening.cancelled()
            and not opening.exception()
            and opening.result() is stream
        ):
            del self._calls[stream.address]

    async def close(self) -> None:
        """Ends every call."""
        openings, self._calls = list(self._calls.values()), {}
        for opening in openings:
            if not opening.done():
                opening.cancel()
        for stream in await asyncio.gather(*openings, return_exceptions=True):
            if isinstance(stream, ProduceStream):
                await stream.close()
