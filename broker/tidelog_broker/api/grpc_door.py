"""Serves gRPC. No other module knows gRPC: services take and return messages (`calls`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]
from grpc_reflection.v1alpha import reflection

from tidelog.records.limits import BATCH_BYTES_HARD_MAX, ENVELOPE_BYTES_MAX
from tidelog_broker.api.access_control import AccessControl
from tidelog_broker.api.admission import Admission
from tidelog_broker.api.calls import Calls, Kind, Method, Observe
from tidelog_broker.api.verbatim import VerbatimAnswer
from tidelog_broker.listener_addresses import ListenerTls
from tidelog_broker.tls.files import Loaded
from tidelog_broker.tls.following import FollowedFiles

ANSWER_BYTES_MAX = BATCH_BYTES_HARD_MAX + ENVELOPE_BYTES_MAX
"""The largest batch and what stands around it (F3): it may have been written with other settings."""

BESIDE_CALLS_MAX = 256
"""Calls of health and reflection that always have room, and those that are being refused. What comes on top
gRPC itself refuses, without details."""

KEEPALIVE_MS = 20_000

SERVER_OPTIONS = (
    ("grpc.max_send_message_length", ANSWER_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class GrpcDoor:
    """A gRPC server with health, reflection and the given services."""

    def __init__(
        self,
        services: Sequence[tuple[ServiceDescriptor, object]],
        *,
        calls_max: int,
        client_calls_max: int,
        message_bytes_max: int,
        observe: Observe,
        control: AccessControl,
        tls: Mapping[ListenerTls, FollowedFiles] = MappingProxyType({}),
    ) -> None:
        """`calls_max`: served at a time; `client_calls_max`: of them, of one client's address;
        `message_bytes_max`: of what clients send; `control`: what callers may do;
        `tls`: the files for listeners with TLS."""
        self._tls = tls
        calls = Calls(Admission(calls_max=calls_max, client_calls_max=client_calls_max), observe, control)
        self._server = grpc.aio.server(
            options=(*SERVER_OPTIONS, ("grpc.max_receive_message_length", message_bytes_max)),
            maximum_concurrent_rpcs=calls_max + BESIDE_CALLS_MAX,
        )
        names = [descriptor.full_name for descriptor, _ in services]
        for descriptor, service in services:
            handlers = {one.name: self._handler(one) for one in calls.methods(descriptor, service)}
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(descriptor.full_name, handlers),)
            )
        self._health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._names = ["", *names]
        reflection.enable_server_reflection([*names, HEALTH_SERVICE, reflection.SERVICE_NAME], self._server)

    def listen(self, host: str, port: int, tls: ListenerTls = "off") -> int:
        """Binds an address; the port that was bound. Raises OSError with a sentence."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound: int = (
                self._server.add_insecure_port(target)
                if tls == "off"
                else self._server.add_secure_port(target, _credentials(self._tls[tls]))
            )
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise OSError(
                f"cannot listen on {target}: the port is in use, or the address does not belong to this "
                f"machine"
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

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        codecs: dict[str, Any] = {
            "request_deserializer": method.parse,
            "response_serializer": _serialized,
        }
        answer: Any = method.answer
        match method.kind:
            case Kind.UNARY:
                return grpc.unary_unary_rpc_method_handler(answer, **codecs)
            case Kind.STREAM:
                return grpc.unary_stream_rpc_method_handler(answer, **codecs)
            case Kind.DUPLEX:
                return grpc.stream_stream_rpc_method_handler(answer, **codecs)


def _credentials(files: FollowedFiles) -> grpc.ServerCredentials:
    """gRPC asks for the certificate at each handshake, in a thread of its own."""
    used = files.last

    def fetch() -> Any:
        nonlocal used
        present = files.now()
        if present is used:
            # None: as before.
            return None
        used = present
        return _configuration(present)

    make: Any = grpc.dynamic_ssl_server_credentials
    made: grpc.ServerCredentials = make(_configuration(used), fetch, files.asks_for_certificates)
    return made


def _configuration(loaded: Loaded) -> Any:
    make: Any = grpc.ssl_server_certificate_configuration
    return make([(loaded.pem.key, loaded.pem.certificate)], loaded.pem.authorities or None)


def _serialized(answer: Any) -> bytes:
    # Not the class's method: some answers serialize themselves (`verbatim`).
    data: bytes = answer.SerializeToString()
    if isinstance(answer, VerbatimAnswer):
        # It waits until its client takes it, and one copy is enough for that.
        answer.drop()
    return data
