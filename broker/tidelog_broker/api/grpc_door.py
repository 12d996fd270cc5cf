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

import re
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any

import grpc
import grpc.aio
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]
from grpc_reflection.v1alpha import reflection

from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog_broker.api.calls import Calls, Observe

MESSAGE_BYTES_MAX = BATCH_BYTES_HARD_MAX + (1 << 20)
"""The largest batch and what stands around it (F3)."""

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


class GrpcDoor:
    """A gRPC server with health, reflection and the given services."""

    def __init__(
        self, services: Sequence[tuple[ServiceDescriptor, object]], *, calls_max: int, observe: Observe
    ) -> None:
        self._calls = Calls(observe)
        self._server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=calls_max)
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
            return grpc.stream_stream_rpc_method_handler(self._calls.duplex(method.name, function), **codecs)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._calls.stream(method.name, function), **codecs)
        return grpc.unary_unary_rpc_method_handler(self._calls.unary(method.name, function), **codecs)


def _parsers_of(service: object) -> Mapping[str, Callable[[bytes], Any]]:
    found: Mapping[str, Callable[[bytes], Any]] = getattr(service, "request_parsers", {})
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
