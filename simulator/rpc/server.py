"""The RPC server of a simulated broker: its services, as `api.calls` has them, with messages instead of gRPC.

`channels` is the client's end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor

from simulator.rpc.framing import Frame, FrameProtocol
from tidelog_broker.api.access_control import AccessControl
from tidelog_broker.api.admission import Admission
from tidelog_broker.api.calls import Calls, Kind, Method

CALLS_MAX: Final = 1_000

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]


class CallObserver(Protocol):
    """Is told each request that a broker gets from a client, and each response."""

    def asked(self, call: object, path: str, request: Any) -> None: ...

    def told(self, call: object, path: str, response: Any) -> None: ...


class RpcServer:
    """Serves the calls of all clients of one broker. For one event loop."""

    def __init__(
        self,
        services: Sequence[tuple[ServiceDescriptor, object]],
        control: AccessControl,
        observer: CallObserver,
    ) -> None:
        self.observer = observer
        admission = Admission(calls_max=CALLS_MAX, client_calls_max=CALLS_MAX)
        calls = Calls(admission, lambda rpc, code: None, control)
        self.methods = {
            f"/{descriptor.full_name}/{method.name}": method
            for descriptor, service in services
            for method in calls.methods(descriptor, service)
        }
        self.running: dict[asyncio.Task[None], None] = {}
        self._server: Any = None

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self).protocol, host, port
        )

    async def stop(self, grace_s: float) -> None:
        """Refuses new connections, and waits up to `grace_s` for open calls."""
        if self._server is not None:
            self._server.close()
        if self.running:
            await asyncio.wait(list(self.running), timeout=grace_s)
        for task in list(self.running):
            task.cancel()


class _Connection:
    """The connection of one client."""

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        self._calls: dict[int, _Call] = {}
        self.protocol = FrameProtocol(self._received, self._lost)

    def _received(self, frame: Frame) -> None:
        if frame.kind == "ping":
            self.protocol.send(Frame(0, "pong"))
        elif frame.kind == "begin":
            call = self._calls[frame.call] = _Call(self, frame, self._server.observer)
            task = asyncio.get_running_loop().create_task(call.run(self._server.methods[frame.what]))
            call.task = task
            self._server.running[task] = None
            task.add_done_callback(lambda done: self._ended(frame.call, done))
        else:
            known = self._calls.get(frame.call)
            if known is not None:
                known.received(frame)

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(number, None)
        self._server.running.pop(task, None)
        if not task.cancelled():
            task.exception()

    def _lost(self) -> None:
        for call in list(self._calls.values()):
            call.cancel()


class _Call:
    """A call, as its service sees it (`api.calls.Caller`)."""

    def __init__(self, connection: _Connection, begun: Frame, observer: CallObserver) -> None:
        self._observer = observer
        self._connection = connection
        self._begun = begun
        self._messages: deque[Any] = deque()
        self._more = asyncio.Event()
        self._closed = False
        self._trailing = b""
        self.task: asyncio.Task[None] | None = None
        self._parse = bytes

    async def run(self, method: Method) -> None:
        self._parse = method.parse  # type: ignore[assignment]
        try:
            request = None
            if method.kind is not Kind.DUPLEX:
                request = method.parse(self._begun.data)
                self._observer.asked(self, self._begun.what, request)
            response = await method.answer(request, self)
            if method.kind is Kind.UNARY:
                await self.write(response)
        except grpc.aio.AbortError:
            return
        self._say("end", "OK")

    def received(self, frame: Frame) -> None:
        match frame.kind:
            case "message":
                self._messages.append(frame.data)
            case "end":
                self._closed = True
            case _:
                self.cancel()
        self._more.set()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def read(self) -> Any:
        while not self._messages:
            if self._closed:
                return _EOF
            self._more.clear()
            await self._more.wait()
        request = self._parse(self._messages.popleft())
        self._observer.asked(self, self._begun.what, request)
        return request

    async def write(self, message: Any) -> None:
        await self._connection.protocol.room()
        self._observer.told(self, self._begun.what, message)
        self._say("message", data=message.SerializeToString())

    def auth_context(self) -> dict[str, Sequence[bytes]]:
        """Connections in the simulator do not use TLS."""
        return {}

    def invocation_metadata(self) -> None:
        """Nor do clients in the simulator have tokens."""

    def peer(self) -> str:
        return self._connection.protocol.peer

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        self._trailing = trailing_metadata[0][1]

    async def abort(self, code: grpc.StatusCode, details: str) -> Any:
        self._say("end", code.name, details.encode(), self._trailing)
        raise grpc.aio.AbortError(details)

    def _say(self, kind: str, what: str = "", data: bytes = b"", details: bytes = b"") -> None:
        self._connection.protocol.send(Frame(self._begun.call, kind, what, data, details))
