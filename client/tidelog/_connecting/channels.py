"""The channels of a client: one gRPC channel for each broker, shared by everything that the client does.

`broker_channel` is the channel to one broker. `hedging` asks several brokers one question,
and `metadata` knows which broker leads which partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from tidelog._connecting.broker_channel import BrokerChannel, Dial, are_you_there, dial, on
from tidelog._connecting.hedging import first_answer
from tidelog._connecting.listeners import Listeners
from tidelog._connecting.tls import Credentials
from tidelog._connecting.tokens import Token
from tidelog.errors import InvalidRequest, TidelogError, Unavailable

T = TypeVar("T")


class Channels:
    """The channels of one client by address, connected when they are first used."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        request_timeout_s: float,
        listener: str = "",
        dial: Dial | None = None,
        tls: Credentials | None = None,
        token: Token | None = None,
    ) -> None:
        """`dial` makes a channel; None: gRPC does, with `tls` and `token` if they are given."""
        addresses = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        self.bootstrap = tuple(dict.fromkeys(_checked_address(address) for address in addresses))
        if not self.bootstrap:
            raise InvalidRequest("no broker address was given; give at least one host:port")
        self.listeners = Listeners(self.bootstrap, listener)
        self.request_timeout_s = request_timeout_s
        """The time that a unary call may take."""
        self._given_dial = dial
        self._tls = tls
        self._token = token
        self._channels: dict[str, BrokerChannel] = {}
        self._retired: dict[BrokerChannel, asyncio.Task[None]] = {}
        """Channels with an earlier certificate, on which calls still run, and what waits for their end."""
        self._closed = False
        self._preferred = self.bootstrap[0]
        self._known: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Channels {', '.join(self._channels) or 'none'}>"

    def to(self, address: str) -> BrokerChannel:
        """The channel to one broker; made when it is first needed."""
        if self._closed:
            raise InvalidRequest("the client is closed; connect again")
        if self._tls is not None and self._tls.renewed():
            self._retire()
        found = self._channels.get(address)
        if found is None:
            found = self._channels[address] = self.dial(address)
        return found

    def dial(self, address: str) -> BrokerChannel:
        """A new channel to a broker, which the caller closes."""
        if self._given_dial is not None:
            return self._given_dial(address)
        return dial(address, None if self._tls is None else self._tls.for_channels, self._token)

    def _retire(self) -> None:
        """Makes the next calls use new channels. The present ones close when their last call has ended."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            self._retired[channel] = asyncio.create_task(self._close_when_idle(channel))

    async def _close_when_idle(self, channel: BrokerChannel) -> None:
        # Unary calls have ended by then.
        await asyncio.sleep(self.request_timeout_s)
        await channel.drained()
        await channel.close()
        del self._retired[channel]

    def learn(self, addresses: Sequence[str]) -> None:
        """Adds the addresses that the cluster reported; they are used when others do not answer."""
        self._known = tuple(addresses)

    # --- requests that any broker can answer

    @property
    def addresses(self) -> list[str]:
        """All known addresses, in the order in which to try them."""
        return list(dict.fromkeys((self._preferred, *self._known, *self.bootstrap)))

    def prefer(self, address: str) -> None:
        """The broker at `address` answered: the next request goes there first."""
        self._preferred = address

    def avoid(self, address: str) -> None:
        """The broker at `address` failed: the next request goes to another broker first, if there is one."""
        if address == self._preferred:
            others = self.addresses
            self._preferred = others[1] if len(others) > 1 else address

    async def anywhere(self, call: Callable[[BrokerChannel], Awaitable[T]]) -> T:
        """The answer of one broker that can be reached. The broker that answered last is asked first.

        Brokers are asked one at a time, because the call may have effects. Raises `Unavailable` with every
        address if no broker can be reached. Any other error ends it, because the request was sent; a
        repetition by the caller goes to another broker.
        """
        for _ in self.addresses:
            if not self.to(self._preferred).connected:
                # A request without effects first finds a broker that answers.
                await self._find()
            address = self._preferred
            try:
                return await on(self.to(address), call)
            except Unavailable as error:
                self.avoid(address)
                if error.details or error.retry_after_ms is not None:
                    # The broker sent this error, not gRPC.
                    raise
                last = error
            except TidelogError as error:
                if error.retriable:
                    self.avoid(address)
                raise
        raise last

    async def _find(self) -> None:
        """Sets `_preferred` to a broker that answers."""
        channels = [self.to(address) for address in self.addresses]
        address, _ = await first_answer(channels, partial(are_you_there, timeout_s=self.request_timeout_s))
        self.prefer(address)

    async def close(self) -> None:
        self._closed = True
        for task in self._retired.values():
            task.cancel()
        await asyncio.gather(*self._retired.values(), return_exceptions=True)
        channels = [*self._retired, *self._channels.values()]
        self._retired, self._channels = {}, {}
        # One after the other: a task that never begins, because its loop is dropped, would leave a warning.
        for channel in channels:
            await channel.close()


def _is_port(text: str) -> bool:
    # ASCII and short: int() refuses other digits, and thousands of them.
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 1 << 16


def _checked_address(address: str) -> str:
    address = address.strip()
    host, colon, port = address.rpartition(":")
    if not host or "/" in host or not colon or not _is_port(port):
        raise InvalidRequest(
            f"{address!r} is not the address of a broker; an address is host:port, for example localhost:9210"
        )
    return address
