"""The command `tidelog-broker prepare-stop`: asks the broker with these settings to prepare its stop (K2).

It is for the preStop hook of a pod, which runs beside the broker. Its own start counts against the
pod's grace period, so it is a plain gRPC client and loads only the settings of the broker.
Neighbour: `api.admin_brokers` serves the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from tidelog_broker.config.settings import Settings
from tidelog_broker.encryption import files_for_clients
from tidelog_broker.errors import BrokerError
from tidelog_broker.identity.local_token import read_local_token
from tidelog_broker.listener_addresses import ListenerSpec, parse_listen
from tidelog_proto import admin_pb2, admin_pb2_grpc, metadata_pb2, metadata_pb2_grpc

TIMEOUT_SECONDS_MAX: Final = 600
"""Brokers accept no longer time in one request."""

THERE_SECONDS_MAX: Final = 5.0
"""How long a broker may take to answer the smallest request; after that it counts as not serving."""

LATE_SECONDS_MAX: Final = 5.0
"""How much later than the requested time the broker may answer."""

TLS_ORDER: Final = ("off", "server", "mutual")
"""Listeners are tried in this order: the certificate of a broker need not be the certificate of a client."""

CHANNEL_OPTIONS: Final = (("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0))


class Outcome(NamedTuple):
    ready: bool
    """The broker may stop now."""
    sentence: str


def prepare_stop(settings: Settings, seconds: int) -> Outcome:
    """Waits up to `seconds` until the broker with these listeners may stop. Raises `BrokerError`."""
    listener = listener_of(settings.listeners)
    target = target_of(listener)
    request = admin_pb2.PrepareStopRequest(broker_id=settings.broker_id, timeout_ms=seconds * 1000)
    with _channel(settings, listener, target) as channel:
        credentials = _credentials(settings)
        try:
            # A port may be bound long before a broker serves there.
            metadata_pb2_grpc.MetadataStub(channel).Resolve(
                metadata_pb2.ResolveRequest(), timeout=THERE_SECONDS_MAX, metadata=credentials
            )
        except grpc.RpcError as error:
            return Outcome(
                False,
                f"no broker serves at {target}: {_reason(error)}. Check that it runs with these settings",
            )
        try:
            answer = admin_pb2_grpc.AdminStub(channel).PrepareStop(
                request, timeout=seconds + LATE_SECONDS_MAX, metadata=credentials
            )
        except grpc.RpcError as error:
            return Outcome(False, f"the broker at {target} could not prepare its stop: {_reason(error)}")
    return _outcome(answer, seconds)


def listener_of(listeners: Sequence[str]) -> ListenerSpec:
    """The listener through which a process on this machine reaches the broker; without TLS, if possible.

    Raises `BrokerError`.
    """
    reachable = [one for one in map(parse_listen, listeners) if one.port]
    if not reachable:
        raise BrokerError(
            f"every listener ({', '.join(listeners)}) has port 0 (any free port), so the port of the broker "
            "is not known; give a listener a port, for example internal=0.0.0.0:9210"
        )
    return min(reachable, key=lambda one: TLS_ORDER.index(one.tls))


def target_of(listener: ListenerSpec) -> str:
    """Its address for a process on the machine of the broker."""
    host = _from_here(listener.host)
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


def _channel(settings: Settings, listener: ListenerSpec, target: str) -> grpc.Channel:
    if listener.tls == "off":
        return grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
    own = files_for_clients(settings)[listener.tls].last.pem
    authorities = Path(settings.tls_authorities).read_bytes() if settings.tls_authorities else None
    credentials = grpc.ssl_channel_credentials(authorities, own.key, own.certificate)
    # The certificate names the host that clients are told, not the address for this machine.
    name = (("grpc.ssl_target_name_override", listener.shown_host),)
    return grpc.secure_channel(target, credentials, options=(*CHANNEL_OPTIONS, *name))


def _credentials(settings: Settings) -> tuple[tuple[str, str], ...]:
    """With authentication the command calls as the broker itself."""
    if settings.authentication == "off":
        return ()
    return (("authorization", f"Bearer {read_local_token(settings.data_dir)}"),)


def _from_here(host: str) -> str:
    """The loopback address in place of an address that stands for all addresses."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _outcome(answer: admin_pb2.PrepareStopResponse, seconds: int) -> Outcome:
    if answer.ready:
        count = answer.hindrance_count
        have = "partition has" if count == 1 else "partitions have"
        note = f"; {count} {have} no copy to spare, or too few in sync already" if count else ""
        return Outcome(True, f"the broker can stop{note}")
    blocking = [one for one in answer.hindrances if one.blocks]
    why = f": {blocking[0].name}/{blocking[0].partition}: {blocking[0].reason}" if blocking else ""
    more = f", and {len(blocking) - 1} more" if len(blocking) > 1 else ""
    return Outcome(False, f"after {seconds} s the broker should not stop yet{why}{more}")


def _reason(error: grpc.RpcError) -> str:
    """What went wrong, as the broker or gRPC says it."""
    return error.details() or error.code().name
