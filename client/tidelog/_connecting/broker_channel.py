"""The gRPC channel to one broker and the calls on it.

`channels` keeps one `BrokerChannel` for each address; `hedging` asks several of them at once.
`tidelog.testing` replaces `BrokerChannel` with a broker in memory, the simulator replaces its gRPC channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast
from weakref import WeakSet

import grpc
import grpc.aio

from tidelog._connecting.framing import FETCH_METHOD, PRODUCE_METHOD, parse_fetch_answer
from tidelog._connecting.status import error_from_rpc
from tidelog._connecting.tokens import Token, WithToken
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog_proto import (
    access_pb2_grpc,
    admin_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    metadata_pb2,
    metadata_pb2_grpc,
)

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = BATCH_BYTES_HARD_MAX + (1 << 20)
"""The largest batch that any stream may allow, and the message around it. Bytes."""

KEEPALIVE_MS: Final = 300
"""A connection with calls on it that receives nothing for this long is pinged."""

PING_TIMEOUT_MS: Final = 1_200
"""A connection whose ping has no answer after this time is closed: at most two seconds after the broker
froze, which is when the cluster gives it up. gRPC answers pings from a thread of its own, so a broker that
is only busy still answers."""

CONNECT_S: Final = 0.5
"""The time that the first attempt to reach a leader waits for a connection; each further attempt waits
this much longer. It is short because metadata may name a broker that is gone. gRPC goes on connecting
between the attempts."""

CONNECT_MS_MAX: Final = 2_000
"""The time that one attempt to connect may take."""

LAST_ANSWER_S_MAX: Final = 0.25
"""How long closing a channel waits for the last answer of its broker."""

RESOLVE_MS_MIN: Final = 500
"""After an address could not be reached, DNS is asked again after this time. gRPC's default of 30 s is
longer than a broker on Kubernetes needs to restart with the same name and another address."""

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    # ping_timeout_ms decides; keepalive_timeout_ms must not be later.
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS_MAX),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.dns_min_time_between_resolutions_ms", RESOLVE_MS_MIN),
    # No proxy between client and brokers, and no connections shared with other clients of the process.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # The library decides what may be sent again (`retry`), not gRPC.
    ("grpc.enable_retries", 0),
)


class FetchCall(Protocol):
    """The part of a running gRPC Fetch call that the library uses."""

    async def read(self) -> object: ...

    def cancel(self) -> bool: ...


class ProduceCall(Protocol):
    """The part of a running gRPC Produce call that the library uses. Requests are serialized (`framing`)."""

    async def wait_for_connection(self) -> None: ...

    async def write(self, request: bytes) -> None: ...

    async def read(self) -> object: ...

    async def code(self) -> grpc.StatusCode: ...

    def cancel(self) -> bool: ...


def dial(
    address: str, tls: grpc.ChannelCredentials | None = None, token: Token | None = None
) -> BrokerChannel:
    """A new gRPC channel to the address. gRPC connects it when it is first used.

    `tls`: None: without TLS. `token`: None: calls have none.
    """
    options = list(CHANNEL_OPTIONS)
    if tls is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        channel = grpc.aio.secure_channel(address, tls, options=options)
    if token is not None:
        channel = cast("grpc.aio.Channel", WithToken(channel, token))
    return BrokerChannel(address, channel)


class BrokerChannel:
    """The channel to the broker at one address, and the calls on it."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        """`channel`: a gRPC channel, or a double with the same methods."""
        self.address = address
        self._channel = channel
        self.log = log_pb2_grpc.LogStub(self._channel)
        self.metadata = metadata_pb2_grpc.MetadataStub(self._channel)
        self.admin = admin_pb2_grpc.AdminStub(self._channel)
        self.access = access_pb2_grpc.AccessStub(self._channel)
        # The two calls that carry batches do not use the generated code (`framing`).
        produce: Any = self._channel.stream_stream(
            PRODUCE_METHOD,
            request_serializer=None,
            response_deserializer=log_pb2.ProduceResponse.FromString,
        )
        self._produce = produce
        self._fetch: Any = self._channel.unary_stream(
            FETCH_METHOD,
            request_serializer=log_pb2.FetchRequest.SerializeToString,
            response_deserializer=parse_fetch_answer,
        )
        self._streams: WeakSet[grpc.aio.Call] = WeakSet()
        """The Produce and Fetch calls on it that are still in use."""

    def __repr__(self) -> str:
        return f"<BrokerChannel {self.address}>"

    def produce(self) -> ProduceCall:
        """A new Produce call."""
        call: Any = self._produce()
        self._streams.add(call)
        return cast("ProduceCall", call)

    def fetch(self, request: log_pb2.FetchRequest) -> FetchCall:
        """A new Fetch call."""
        call: Any = self._fetch(request)
        self._streams.add(call)
        return cast("FetchCall", call)

    async def drained(self) -> None:
        """Returns when the Produce and Fetch calls on it have ended."""
        await asyncio.gather(*map(_end_of, self._streams))

    @property
    def connected(self) -> bool:
        """Whether gRPC reports an established connection."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """Closes the channel after gRPC has reported the end of every call that was cancelled on it.

        gRPC reports it through the event loop that made the call, a moment after ``cancel()``. If that loop
        is closed by then, gRPC prints "Event loop is closed" from any other loop of the process. The answer
        to one more request comes behind those reports, because a connection handles them in order.
        """
        try:
            if self.connected:
                await are_you_there(self, LAST_ANSWER_S_MAX)
        except grpc.RpcError:
            # An error is an answer, too; and without one there is nothing more to wait for.
            pass
        finally:
            await self._channel.close(None)


async def _end_of(call: grpc.aio.Call) -> None:
    ended = asyncio.Event()
    call.add_done_callback(lambda _: ended.set())
    await ended.wait()


Dial = Callable[[str], BrokerChannel]
"""Makes the channel to an address."""


async def on(channel: BrokerChannel, call: Callable[[BrokerChannel], Awaitable[T]]) -> T:
    """The answer of one call to one broker; raises a failure as one of `tidelog.errors`."""
    try:
        return await call(channel)
    except grpc.RpcError as error:
        raise error_from_rpc(error, channel.address) from None


async def are_you_there(channel: BrokerChannel, timeout_s: float) -> metadata_pb2.ResolveResponse:
    """Sends the smallest request that every broker answers."""
    return await channel.metadata.Resolve(metadata_pb2.ResolveRequest(), timeout=timeout_s)


async def reach(channel: BrokerChannel, timeout_s: float) -> None:
    """Returns when the broker has answered; raises a retriable error if no answer comes in time."""
    await on(channel, partial(are_you_there, timeout_s=timeout_s))
