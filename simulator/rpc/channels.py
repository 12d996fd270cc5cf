"""The client library's channel to a simulated broker, in the place of a gRPC channel: it has the same calls.

It connects at the first call, and again after a break. It checks a connection with open calls as gRPC's
keepalive does. `server` is the other end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

import grpc
import grpc.aio

from simulator.rpc.framing import Frame, FrameProtocol
from tidelog._connecting.broker_channel import CONNECT_MS_MAX, KEEPALIVE_MS, PING_TIMEOUT_MS
from tidelog._connecting.status import STATUS_DETAILS_KEY

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
REDIAL_S: Final = 0.1


class Channel:
    """A channel to one broker, with the methods of `grpc.aio.Channel` that the client library uses."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._loop = asyncio.get_running_loop()
        self._protocol: FrameProtocol | None = None
        self._calls: dict[int, Call] = {}
        self._count = 0
        self._connecting: asyncio.Task[None] | None = None
        self._heard = 0.0
        self._pinging: asyncio.TimerHandle | None = None

    def get_state(self) -> grpc.ChannelConnectivity:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # The run is over: Python collects a coroutine that closes its client, and nothing answers it.
            return grpc.ChannelConnectivity.SHUTDOWN
        connected = self._protocol is not None
        return grpc.ChannelConnectivity.READY if connected else grpc.ChannelConnectivity.IDLE

    async def close(self, grace: float | None = None) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._protocol is not None:
            self._protocol.abort()

    # --- the kinds of calls, as generated code uses them

    def unary_unary(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **unused: Any
    ) -> Callable[..., Unary]:
        def begin(request: Any, timeout: float | None = None, **also_unused: Any) -> Unary:
            call = Call(self, path, response_deserializer, request_serializer(request))
            return Unary(call, timeout)

        return begin

    def unary_stream(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **unused: Any
    ) -> Callable[..., Call]:
        return lambda request: Call(self, path, response_deserializer, request_serializer(request))

    def stream_stream(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **unused: Any
    ) -> Callable[..., Call]:
        return lambda: Call(self, path, response_deserializer, None)

    # --- for calls

    def add(self, call: Call) -> int:
        self._count += 1
        self._calls[self._count] = call
        if self._protocol is not None:
            call.begin(self._count)
        elif self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
        self._watch()
        return self._count

    def remove(self, number: int) -> None:
        self._calls.pop(number, None)

    def send(self, frame: Frame) -> None:
        if self._protocol is not None:
            self._protocol.send(frame)

    async def room(self) -> None:
        if self._protocol is not None:
            await self._protocol.room()

    # --- the connection

    async def _connect(self) -> None:
        protocol = FrameProtocol(self._received, self._lost)
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                await self._loop.create_connection(lambda: protocol, *self._address)
        except (OSError, TimeoutError) as error:
            self._connecting = None
            self._fail_all(f"failed to connect: {error}")
            return
        self._connecting = None
        if not protocol.open:
            self._fail_all("the connection was closed at once")
            return
        self._protocol = protocol
        self._heard = self._loop.time()
        for number, call in list(self._calls.items()):
            call.begin(number)

    def _received(self, frame: Frame) -> None:
        self._heard = self._loop.time()
        call = self._calls.get(frame.call)
        if call is not None:
            call.received(frame)

    def _lost(self) -> None:
        if self._protocol is not None:
            self._protocol = None
            self._fail_all("the connection was reset")

    def _fail_all(self, reason: str) -> None:
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.failed(grpc.StatusCode.UNAVAILABLE, reason)

    def _watch(self) -> None:
        """Closes a connection that has open calls and does not answer, as gRPC's keepalive does."""
        if self._pinging is None and self._calls:
            self._pinging = self._loop.call_later(KEEPALIVE_MS / 1000, self._ping)

    def _ping(self) -> None:
        self._pinging = None
        protocol = self._protocol
        if protocol is not None:
            if self._loop.time() - self._heard > (KEEPALIVE_MS + PING_TIMEOUT_MS) / 1000:
                protocol.abort()
                return
            protocol.send(Frame(0, "ping"))
        self._watch()


class Call:
    """A call with a stream of responses, as in `grpc.aio`."""

    def __init__(
        self, channel: Channel, path: str, parse: Callable[[bytes], Any], request: bytes | None
    ) -> None:
        """`request`: the only request; None: the client writes requests later."""
        self._channel = channel
        self._path = path
        self._parse = parse
        self._request = request
        self._answers: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._begun = asyncio.Event()
        self._status: grpc.aio.AioRpcError | grpc.StatusCode | None = None
        """How the call ended: an error, or OK; None: it is open."""
        self._number = channel.add(self)

    def begin(self, number: int) -> None:
        self._channel.send(Frame(number, "begin", self._path, self._request or b""))
        self._begun.set()

    def received(self, frame: Frame) -> None:
        if frame.kind == "message":
            self._answers.append(frame.data)
        elif frame.what == "OK":
            self._end(grpc.StatusCode.OK)
        else:
            self.failed(grpc.StatusCode[frame.what], frame.data.decode(), frame.details)
        self._changed.set()

    def failed(self, code: grpc.StatusCode, text: str, details: bytes = b"") -> None:
        trailing = grpc.aio.Metadata((STATUS_DETAILS_KEY, details)) if details else grpc.aio.Metadata()
        error = grpc.aio.AioRpcError(
            code, grpc.aio.Metadata(), trailing, details=text, debug_error_string=text
        )
        self._end(error)

    def _end(self, status: grpc.aio.AioRpcError | grpc.StatusCode) -> None:
        if self._status is None:
            self._status = status
            self._channel.remove(self._number)
            self._changed.set()
            self._begun.set()

    # --- for the client library

    async def wait_for_connection(self) -> None:
        await self._begun.wait()
        if isinstance(self._status, grpc.aio.AioRpcError):
            raise self._status

    async def write(self, request: bytes) -> None:
        await self.wait_for_connection()
        await self._channel.room()
        if isinstance(self._status, grpc.aio.AioRpcError):
            raise self._status
        self._channel.send(Frame(self._number, "message", data=bytes(request)))

    async def read(self) -> Any:
        while not self._answers:
            if isinstance(self._status, grpc.aio.AioRpcError):
                raise self._status
            if self._status is not None:
                return _EOF
            self._changed.clear()
            await self._changed.wait()
        return self._parse(self._answers.popleft())

    async def code(self) -> grpc.StatusCode:
        while self._status is None:
            self._changed.clear()
            await self._changed.wait()
        return self._status.code() if isinstance(self._status, grpc.aio.AioRpcError) else self._status

    def cancel(self) -> bool:
        if self._status is not None:
            return False
        self._channel.send(Frame(self._number, "cancel"))
        self.failed(grpc.StatusCode.CANCELLED, "cancelled by its client")
        return True


class Unary:
    """A call with one response, which is awaited."""

    def __init__(self, call: Call, timeout_s: float | None) -> None:
        self._call = call
        self._timeout_s = timeout_s

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._call.read()
        except TimeoutError:
            self._call.cancel()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata(),
                details="Deadline Exceeded", debug_error_string="",
            ) from None  # fmt: skip
        except asyncio.CancelledError:
            self._call.cancel()
            raise
