"""gRPC: the one module that knows it. Services speak messages, this turns them into calls.

A service is an object with one method per rpc, by its name in snake case:

- unary: ``async def publish(request) -> response``
- server stream: ``def fetch(request) -> AsyncGenerator[response]``
- both streams: ``def produce(send) -> call`` with ``receive(request)``, ``full``,
  ``unanswered`` and ``until(condition)``

A service may name parsers of its own for some requests: ``request_parsers``, by rpc.

They raise `TidelogError`; anything else is a bug, logged with its trace and answered as
INTERNAL.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from operator import methodcaller
from typing import Any

import grpc
import grpc.aio
import structlog
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]
from grpc_reflection.v1alpha import reflection

from tidelog.errors import TidelogError
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog_broker.api.admission import Admission, client_of
from tidelog_broker.api.status import RichStatus, internal_error, rich_status

log = structlog.get_logger(__name__)

MESSAGE_BYTES_MAX = BATCH_BYTES_HARD_MAX + (1 << 20)
"""The largest batch and what stands around it (F3)."""

OUTBOX_MAX = 10_000
"""Answers of one Produce call that its client has not taken yet; over it no more requests are read."""

BESIDE_CALLS_MAX = 256
"""Calls of health and reflection that always have room, and those that are being refused. What comes on top
gRPC itself refuses, without details."""

KEEPALIVE_MS = 20_000

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)

# Not in the stubs.
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_GONE: type[Exception] = grpc.aio.BaseError

Observe = Callable[[str, str], None]
"""Called with the rpc's name and the code of its outcome ("OK" or an error code)."""


class GrpcDoor:
    """A gRPC server with health, reflection and the given services."""

    def __init__(
        self,
        services: Sequence[tuple[ServiceDescriptor, object]],
        *,
        calls_max: int,
        client_calls_max: int,
        observe: Observe,
    ) -> None:
        """`calls_max`: served at a time; `client_calls_max`: of them, of one client's address."""
        self._observe = observe
        self._admission = Admission(calls_max=calls_max, client_calls_max=client_calls_max)
        self._server = grpc.aio.server(
            options=SERVER_OPTIONS, maximum_concurrent_rpcs=calls_max + BESIDE_CALLS_MAX
        )
        names = [descriptor.full_name for descriptor, _ in services]
        for descriptor, service in services:
            handlers = {method.name: self._handler(method, service) for method in descriptor.methods}
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(descriptor.full_name, handlers),)
            )
        self._health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._names = ["", *names]
        reflection.enable_server_reflection([*names, HEALTH_SERVICE, reflection.SERVICE_NAME], self._server)

    def listen(self, host: str, port: int) -> int:
        """Binds an address; the port that was bound. Raises OSError with a sentence."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound: int = self._server.add_insecure_port(target)
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise OSError(
                f"cannot listen on {target}: the port is in use or the address is not this machine's"
            )
        return bound

    async def start(self) -> None:
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """What grpc.health.v1 answers, for the server and each service."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in self._names:
            await self._health.set(name, status)

    async def stop(self, grace: float) -> None:
        """Refuses new calls and waits up to `grace` seconds for those that run."""
        await self._server.stop(grace)

    def _handler(self, method: MethodDescriptor, service: object) -> grpc.RpcMethodHandler[Any, Any]:
        function = getattr(service, _snake(method.name))
        request_class: Any = message_factory.GetMessageClass(method.input_type)
        codecs = {
            "request_deserializer": _parsers_of(service).get(method.name, request_class.FromString),
            # Not the class's: some answers serialize themselves (`verbatim`).
            "response_serializer": methodcaller("SerializeToString"),
        }
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._duplex(method.name, function), **codecs)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(method.name, function), **codecs)
        return grpc.unary_unary_rpc_method_handler(self._unary(method.name, function), **codecs)

    def _unary(self, name: str, function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                with self._admitted(context):
                    response = await function(request)
            except Exception as error:
                await self._abort(name, error, context)
            else:
                self._observe(name, "OK")
                return response

        return answer

    def _stream(self, name: str, function: Callable[[Any], AsyncGenerator[Any]]) -> Callable[[Any, Any], Any]:
        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            try:
                with self._admitted(context):
                    async with aclosing(function(request)) as responses:
                        async for response in responses:
                            await context.write(response)
            except Exception as error:
                await self._abort(name, error, context)
            else:
                self._observe(name, "OK")

        return answer

    def _duplex(
        self, name: str, function: Callable[[Callable[[Any], None]], Any]
    ) -> Callable[[Any, Any], Any]:
        async def serve(context: grpc.aio.ServicerContext[Any, Any]) -> None:
            outbox = _Outbox(context)
            writer = asyncio.create_task(outbox.run())
            try:
                call = function(outbox.put)
                while (request := await context.read()) is not _EOF:
                    call.receive(request)
                    if call.full:
                        await call.until(lambda: not call.full)
                    if outbox.full:
                        await outbox.room()
                await call.until(lambda: call.unanswered == 0)
                outbox.close()
                await writer
            finally:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)

        async def answer(_requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            try:
                with self._admitted(context):
                    await serve(context)
            except Exception as error:
                await self._abort(name, error, context)
            else:
                self._observe(name, "OK")

        return answer

    @contextmanager
    def _admitted(self, context: grpc.aio.ServicerContext[Any, Any]) -> Iterator[None]:
        client = client_of(context.peer())
        self._admission.enter(client)
        try:
            yield
        finally:
            self._admission.leave(client)

    async def _abort(self, name: str, error: Exception, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, _GONE):
            # The client left while it was being answered: nobody is there to be told.
            self._observe(name, "CANCELLED")
            return
        if not isinstance(error, TidelogError):
            log.error("a call failed", rpc=name, exc_info=error)
            error = internal_error(error)
        self._observe(name, error.code)
        status = RichStatus(rich_status(error))
        context.set_trailing_metadata(status.trailing_metadata)
        await context.abort(status.code, status.details)


class _Outbox:
    """Answers of one call that wait to be written; when there are many the call is not read."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context
        self._responses: deque[Any] = deque()
        self._wake = asyncio.Event()
        self._emptied = asyncio.Event()
        self._closed = False

    def put(self, response: Any) -> None:
        self._responses.append(response)
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    @property
    def full(self) -> bool:
        return len(self._responses) > OUTBOX_MAX

    async def room(self) -> None:
        """Waits until all answers are written."""
        while self._responses:
            self._emptied.clear()
            await self._emptied.wait()

    async def run(self) -> None:
        try:
            while True:
                while self._responses:
                    await self._context.write(self._responses.popleft())
                self._emptied.set()
                if self._closed:
                    return
                self._wake.clear()
                await self._wake.wait()
        finally:
            # Whoever waits for room must see that the call is over.
            self._responses.clear()
            self._emptied.set()


def _parsers_of(service: object) -> Mapping[str, Callable[[bytes], Any]]:
    found: Mapping[str, Callable[[bytes], Any]] = getattr(service, "request_parsers", {})
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
