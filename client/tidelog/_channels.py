"""Connections: one gRPC channel per broker, shared by everything that a client does.

Also the calls that any broker may answer (`Channels.anywhere`) and the first contact
(`Channels.connect`). Who leads what is `_metadata`'s business.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from tidelog._framing import FETCH_METHOD, PRODUCE_METHOD, parse_fetch_answer
from tidelog._retry import RetryPolicy
from tidelog._status import error_from_rpc
from tidelog.errors import InvalidRequest, TidelogError, Unavailable
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog_proto import admin_pb2_grpc, log_pb2, log_pb2_grpc, metadata_pb2, metadata_pb2_grpc

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = BATCH_BYTES_HARD_MAX + (1 << 20)
"""A whole batch of the hard bound, and what stands around it."""

KEEPALIVE_MS: Final = 20_000
"""How often a connection with calls on it is asked whether it is still there."""

KEEPALIVE_TIMEOUT_MS: Final = 10_000

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
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
    """What is used of a running Produce call; requests are serialized already (`_framing`)."""

    async def wait_for_connection(self) -> None: ...

    async def write(self, request: bytes) -> None: ...

    async def read(self) -> object: ...

    async def code(self) -> grpc.StatusCode: ...

    def cancel(self) -> bool: ...


class Broker:
    """The calls to one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS))
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
        return f"<Broker {self.address}>"

    async def close(self) -> None:
        await self._channel.close(None)


class Channels:
    """The brokers that a client talks to, by address, connected when first used."""

    def __init__(self, bootstrap: Sequence[str], *, request_timeout_s: float) -> None:
        self.bootstrap = tuple(_checked_address(address) for address in bootstrap)
        if not self.bootstrap:
            raise InvalidRequest("no broker address given; give at least one host:port")
        self.request_timeout_s = request_timeout_s
        """How long a unary call may take."""
        self._brokers: dict[str, Broker] = {}
        self._closed = False
        self._preferred = self.bootstrap[0]
        self._known: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Channels {', '.join(self._brokers) or 'none'}>"

    def broker(self, address: str) -> Broker:
        if self._closed:
            raise InvalidRequest("the client is closed")
        found = self._brokers.get(address)
        if found is None:
            found = self._brokers[address] = Broker(address)
        return found

    def learn(self, addresses: Sequence[str]) -> None:
        """Addresses that the cluster itself named: to ask when the first ones are silent."""
        self._known = tuple(addresses)

    async def anywhere(self, call: Callable[[Broker], Awaitable[T]]) -> T:
        """The answer of the first broker that can be reached; the last that answered goes first.

        Raises `Unavailable` naming every address tried if none could; any other error
        is the answer, because the request was sent.
        """
        addresses = dict.fromkeys((self._preferred, *self.bootstrap, *self._known))
        silent: list[str] = []
        for address in addresses:
            try:
                answer = await on(self.broker(address), call)
            except Unavailable as error:
                if error.details:
                    # A broker's own answer, not gRPC's.
                    raise
                silent.append(f"{address} ({error})")
            else:
                self._preferred = address
                return answer
        raise Unavailable(f"no broker could be reached: {'; '.join(silent)}")

    async def connect(self, timeout_s: float, policy: RetryPolicy, rng: random.Random) -> None:
        """Waits until one of the first addresses answers; they are asked side by side.

        Raises `Unavailable` after `timeout_s`, with each address and why it was not it.
        """
        reasons: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        asking = {
            asyncio.create_task(self._ask(address, deadline, reasons, policy, rng))
            for address in self.bootstrap
        }
        try:
            while asking:
                done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    address = task.result()
                    if address is not None:
                        self._preferred = address
                        return
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        tried = "; ".join(f"{address}: {reasons.get(address, 'no answer')}" for address in self.bootstrap)
        raise Unavailable(
            f"no broker answered within {timeout_s:g} s: {tried}", addresses=",".join(self.bootstrap)
        )

    async def _ask(
        self, address: str, deadline: float, reasons: dict[str, str], policy: RetryPolicy, rng: random.Random
    ) -> str | None:
        """`address` once it answers, None when the time is over."""
        loop = asyncio.get_running_loop()
        tries = 0
        while (left := deadline - loop.time()) > 0:
            broker = self.broker(address)
            request = metadata_pb2.ResolveRequest()
            try:
                await on(broker, partial(_resolve, request=request, timeout_s=left))
            except TidelogError as error:
                reasons[address] = error.message
                tries += 1
                delay = policy.delay_s(tries, rng, error.retry_after_ms)
                await asyncio.sleep(max(0.0, min(delay, deadline - loop.time())))
            else:
                return address
        return None

    async def close(self) -> None:
        self._closed = True
        brokers, self._brokers = list(self._brokers.values()), {}
        for broker in brokers:
            await broker.close()


async def on(broker: Broker, call: Callable[[Broker], Awaitable[T]]) -> T:
    """The answer of one call to one broker, its failure as one of `tidelog.errors`."""
    try:
        return await call(broker)
    except grpc.RpcError as error:
        raise error_from_rpc(error, broker.address) from None


async def _resolve(
    broker: Broker, request: metadata_pb2.ResolveRequest, timeout_s: float
) -> metadata_pb2.ResolveResponse:
    return await broker.metadata.Resolve(request, timeout=timeout_s)


def _is_port(text: str) -> bool:
    # ASCII and short: int() refuses other digits, and thousands of them.
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 1 << 16


def _checked_address(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not host or "/" in host or not colon or not _is_port(port):
        raise InvalidRequest(f"{address!r} is not a broker's address; one looks like localhost:9210")
    return address
