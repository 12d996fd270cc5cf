"""Errors from the wire as the classes of `tidelog.errors`.

There are two forms: an ``Error`` message inside a stream of answers, and a gRPC status whose trailing
metadata holds google.rpc.ErrorInfo and RetryInfo. A status without details comes from gRPC (a refused
connection, a broken one, a deadline). Then its code decides, and whether the request can have reached the
broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from tidelog import wire
from tidelog.errors import (
    BatchTooLarge,
    ConnectionLost,
    FeatureNotImplemented,
    InternalError,
    InvalidRequest,
    ResourceExhausted,
    TidelogError,
    TimedOut,
    Unavailable,
    error_from_code,
)
from tidelog_proto import common_pb2

ERROR_DOMAIN: Final = "tidelog.io"
STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"

_KNOWN_CODES = frozenset(common_pb2.ErrorCode.values())
_KNOWN_REASONS = frozenset(common_pb2.ErrorCode.keys())

_NEVER_SENT = ("failed to connect", "name resolution", "dns resolution", "connection refused")
"""Parts of the text of gRPC's UNAVAILABLE when there was no connection, so nothing was sent."""

_NOT_VERIFIED: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED: (?P<reason>[^:]+)")

_NOT_CONNECTED: Final = {
    "connection refused": "the connection was refused",
    "wrong_version_number": "it does not use TLS; connect without TLS, or to another listener",
    "hostname verification": "its certificate does not name this host; connect to a host that it names",
    "socket closed": "it closed the connection; if its listener uses TLS, the client must do so, too, and "
    "with tls=mutual it must show a certificate that the broker trusts",
}
"""Parts of gRPC's text when there is no connection, and a sentence for each."""

_CALL_BROKE: Final = "internal error from core"
"""The begin of the text of gRPC's INTERNAL when a call of this client lost its connection."""

_REFUSED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)


def error_from_message(message: common_pb2.Error) -> TidelogError:
    """The typed error for an ``Error`` in a stream; for an unknown code, retriable and definite are as the
    broker says."""
    error = wire.error_from_proto(message)
    if message.code not in _KNOWN_CODES:
        vars(error).update(retriable=message.retriable, definite=message.definite)
    return error


def error_from_rpc(error: grpc.RpcError, address: str) -> TidelogError:
    """The typed error for a failed call to `address`."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return InternalError(f"{address}: {error!r}")
    detailed = _from_details(error)
    if detailed is not None:
        return detailed
    return _from_plain_status(error.code(), error.details() or "", address)


def _from_details(error: grpc.aio.AioRpcError) -> TidelogError | None:
    trailing: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]
    for key, value in trailing:
        if key == STATUS_DETAILS_KEY:
            return _from_status_bytes(value if isinstance(value, bytes) else value.encode())
    return None


def _from_status_bytes(data: bytes) -> TidelogError | None:
    status = status_pb2.Status.FromString(data)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    found, retry_after_ms = False, None
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
            found = info.domain == ERROR_DOMAIN
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after_ms = retry.retry_delay.ToMilliseconds()
    if not found:
        return None
    details = dict(info.metadata)
    retriable, definite = details.pop("retriable", ""), details.pop("definite", "")
    error = error_from_code(info.reason, status.message, details, retry_after_ms)
    if info.reason not in _KNOWN_REASONS:
        vars(error).update(retriable=retriable == "true", definite=definite == "true")
    return error


def _from_plain_status(code: grpc.StatusCode | None, text: str, address: str) -> TidelogError:
    where = f"{address}: {text}" if text else address
    if code is grpc.StatusCode.UNAVAILABLE:
        if any(sign in text.lower() for sign in _NEVER_SENT):
            return Unavailable(f"no connection to {address}: {_why_not_connected(text)}")
        return ConnectionLost(f"the connection broke: {where}")
    if code is grpc.StatusCode.INTERNAL and text.lower().startswith(_CALL_BROKE):
        return ConnectionLost(f"the call broke: {where}")
    if code is grpc.StatusCode.CANCELLED:
        return ConnectionLost(f"the call was cancelled: {where}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimedOut(f"no answer in time from {where}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return FeatureNotImplemented(f"the server does not know this call: {where}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "larger than max" in text:
            return BatchTooLarge(f"a message is over gRPC's limit: {where}")
        return ResourceExhausted(where)
    name = code.name if code is not None else "no status"
    if code in _REFUSED:
        return InvalidRequest(f"refused with {name}: {where}")
    return InternalError(f"{name}: {where}")


def _why_not_connected(text: str) -> str:
    found = _NOT_VERIFIED.search(text)
    if found is not None:
        return f"its certificate cannot be verified ({found['reason']}); check the authorities of the client"
    lower = text.lower()
    return next((reason for sign, reason in _NOT_CONNECTED.items() if sign in lower), text)
