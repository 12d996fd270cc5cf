"""Connections: one gRPC channel per broker, shared by everything that a client does.

Which broker to ask where any may answer is `hedging`'s business, who leads what
`metadata`'s. `tidelog.testing` puts brokers in memory in the place of `BrokerChannel`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from tidelog._connecting.framing import FETCH_METHOD, PRODUCE_METHOD, parse_fetch_answer
from tidelog._connecting.hedging import are_you_there, first_answer, on
from tidelog._connecting.listeners import Listeners
from tidelog.errors import InvalidRequest, TidelogError, Unavailable
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog_proto import admin_pb2_grpc, log_pb2, log_pb2_grpc, metadata_pb2_grpc

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = BATCH_BYTES_HARD_MAX + (1 << 20)
"""A whole batch of the hard bound, and what stands around it."""

KEEPALIVE_MS: Final = 300
"""How often a connection with calls on it, from which nothing comes, is asked whether it is still there."""

PING_TIMEOUT_MS: Final = 1_200
"""No answer for so long, and the connection is given up: at most two seconds after a broker froze, which
is when a cluster takes it for gone. gRPC answers from a thread of its own, so that a broker that is only
busy is not mistaken for one."""

CONNECT_S: Final = 0.5
"""How long the first attempt to reach a leader waits for a connection, each further one so much longer:
metadata may name a broker that is gone. The connecting itself goes on meanwhile."""

CONNECT_MS_MAX: Final = 2_000
"""How long one attempt to connect may take."""

RESOLVE_MS_MIN: Final = 500
"""How long an address is believed that DNS gave, once it is not reached. gRPC's own 30 s are longer than a
broker on Kubernetes takes to come back, under the same name, with another address."""

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    # The second one decides; the first must not be later.
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS_MAX),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.dns_min_time_between_resolutions_ms", RESOLVE_MS_MIN),
    # Brokers are reached directly, and a client's connections are its own.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # What may be sent again is decided here, not by gRPC.
    ("grpc.enable_retries", 0),
)


class FetchCall(Protocol):
    """What is used of a running Fetch call."""

    async def read(self) -> object: ...

    def cancel(self) -> bool: ...


class ProduceCall(Protocol):
    """What is used of a running Produce call; requests are serialized already (`framing`)."""

    async def wait_for_connection(self) -> None: ...

    async def write(self, request: bytes) -> None: ...

    async def read(self) -> object: ...

    async def code(self) -> grpc.StatusCode: ...

    def cancel(self) -> bool: ...


def dial(address: str) -> BrokerChannel:
    """The calls to an address, over a gRPC channel of its own, which connects by itself."""
    return BrokerChannel(address, grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS)))


class BrokerChannel:
    """The calls to one address."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        """`channel`: a gRPC channel, or a double with the same calls."""
        self.address = address
        self._channel = channel
        self.log = log_pb2_grpc.LogStub(self._channel)
        self.metadata = metadata_pb2_grpc.MetadataStub(self._channel)
        self.admin = admin_pb2_grpc.AdminStub(self._channel)
        # The two streams that carry batches bypass the generated code.
        produce: Any = self._channel.stream_stream(
            PRODUCE_METHOD,
            request_serializer=None,
            response_deserializer=log_pb2.ProduceResponse.FromString,
        )
        self.produce: Callable[[], ProduceCall] = produce
        self.fetch: Callable[[log_pb2.FetchRequest], FetchCall] = self._channel.unary_stream(
            FETCH_METHOD,
            request_serializer=log_pb2.FetchRequest.SerializeToString,
            response_deserializer=parse_fetch_answer,
        )

    def __repr__(self) -> str:
        return f"<BrokerChannel {self.address}>"

    @property
    def connected(self) -> bool:
        """Whether a connection stands, as far as is known."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        await self._channel.close(None)


Dial = Callable[[str], BrokerChannel]
"""Makes the calls to an address."""


class Channels:
    """The brokers that a client talks to, by address, connected when first used."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        request_timeout_s: float,
        listener: str = "",
        dial: Dial = dial,
    ) -> None:
        addresses = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        self.bootstrap = tuple(dict.fromkeys(_checked_address(address) for address in addresses))
        if not self.bootstrap:
            raise InvalidRequest("no broker address given; give at least one host:port")
        self.listeners = Listeners(self.bootstrap, listener)
        self.request_timeout_s = request_timeout_s
        """How long a unary call may take."""
        self._dial = dial
        self._brokers: dict[str, BrokerChannel] = {}
        self._closed = False
        self._preferred = self.bootstrap[0]
        self._known: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Channels {', '.join(self._brokers) or 'none'}>"

    def broker(self, address: str) -> BrokerChannel:
        if self._closed:
            raise InvalidRequest("the client is closed")
        found = self._brokers.get(address)
        if found is None:
            found = self._brokers[address] = self._dial(address)
        return found

    def learn(self, addresses: Sequence[str]) -> None:
        """Addresses that the cluster itself named: to ask when the first ones are silent."""
        self._known = tuple(addresses)

    # --- whom to ask where any broker may answer

    @property
    def addresses(self) -> list[str]:
        """All that are known, in the order in which to ask them."""
        return list(dict.fromkeys((self._preferred, *self._known, *self.bootstrap)))

    def prefer(self, address: str) -> None:
        """It answered: the next question goes there first."""
        self._preferred = address

    def avoid(self, address: str) -> None:
        """It did not answer, or could not: the next question goes to another one first, if there is one."""
        if address == self._preferred:
            others = self.addresses
            self._preferred = others[1] if len(others) > 1 else address

    async def anywhere(self, call: Callable[[BrokerChannel], Awaitable[T]]) -> T:
        """The answer of one broker that can be reached; the last that answered is asked first.

        One at a time: the call may have effects. Raises `Unavailable` naming every address
        if none can be reached; any other error is the answer, because the request was
        sent, and whoever repeats it will reach another broker.
        """
        for _ in self.addresses:
            if not self.broker(self._preferred).connected:
                # Nothing is lost by asking whether anybody is there before something is sent.
                await self._find()
            address = self._preferred
            try:
                return await on(self.broker(address), call)
            except Unavailable as error:
                self.avoid(address)
                if error.details or error.retry_after_ms is not None:
                    # A broker's own answer, not gRPC's.
                    raise
                last = error
            except TidelogError as error:
                if error.retriable:
                    self.avoid(address)
                raise
        raise last

    async def _find(self) -> None:
        """Has `_preferred` be a broker that answers."""
        brokers = [self.broker(address) for address in self.addresses]
        address, _ = await first_answer(brokers, partial(are_you_there, timeout_s=self.request_timeout_s))
        self.prefer(address)

    async def close(self) -> None:
        self._closed = True
        brokers, self._brokers = list(self._brokers.values()), {}
        for broker in brokers:
            await broker.close()


def _is_port(text: str) -> bool:
    # ASCII and short: int() refuses other digits, and thousands of them.
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 1 << 16


def _checked_address(address: str) -> str:
    address = address.strip()
    host, colon, port = address.rpartition(":")
    if not host or "/" in host or not colon or not _is_port(port):
        raise InvalidRequest(f"{address!r} is not a broker's address; one looks like localhost:9210")
    return address
