"""Errors in the form of gRPC, so that the client under test sees no difference."""

from __future__ import annotations

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from tidelog._connecting.status import ERROR_DOMAIN, STATUS_DETAILS_KEY
from tidelog.errors import ConnectionLost, TidelogError


def refused(error: TidelogError) -> grpc.aio.AioRpcError:
    """The status of a refused request; `ConnectionLost` becomes a broken connection."""
    if isinstance(error, ConnectionLost):
        return broken(error.message)
    facts = {
        **error.details,
        "retriable": str(error.retriable).lower(),
        "definite": str(error.definite).lower(),
    }
    status = status_pb2.Status(code=grpc.StatusCode.ABORTED.value[0], message=error.message)
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason=error.code, domain=ERROR_DOMAIN, metadata=facts)
    )
    if error.retry_after_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(error.retry_after_ms)
        status.details.add().Pack(retry)
    trailing = grpc.aio.Metadata((STATUS_DETAILS_KEY, status.SerializeToString()))
    return _error(grpc.StatusCode.ABORTED, error.message, trailing)


def broken(reason: str = "connection reset by peer") -> grpc.aio.AioRpcError:
    """The connection broke, and with it every call on it."""
    return _error(grpc.StatusCode.UNAVAILABLE, reason)


def unreachable() -> grpc.aio.AioRpcError:
    """No connection can be made to the address."""
    return _error(grpc.StatusCode.UNAVAILABLE, "failed to connect: connection refused")


def too_late() -> grpc.aio.AioRpcError:
    return _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def unknown_call(method: str) -> grpc.aio.AioRpcError:
    return _error(grpc.StatusCode.UNIMPLEMENTED, f"brokers in memory do not know {method}")


def _error(
    code: grpc.StatusCode, text: str, trailing: grpc.aio.Metadata | None = None
) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), trailing or grpc.aio.Metadata(), details=text, debug_error_string=text
    )
