"""Writes errors to the wire: as an `Error` message in a stream of answers, as a rich status for a call.

Both carry the same facts: code, retriable, definite, details, and when to try again.
"""

from __future__ import annotations

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from tidelog.errors import InternalError, TidelogError

DOMAIN = "tidelog.io"

_GRPC_CODES = {
    "INVALID_REQUEST": code_pb2.INVALID_ARGUMENT,
    "UNSUPPORTED_VERSION": code_pb2.INVALID_ARGUMENT,
    "CORRUPT_BATCH": code_pb2.INVALID_ARGUMENT,
    "BATCH_TOO_LARGE": code_pb2.INVALID_ARGUMENT,
    "INVALID_TIMESTAMP": code_pb2.INVALID_ARGUMENT,
    "NOT_IMPLEMENTED": code_pb2.UNIMPLEMENTED,
    "UNAUTHENTICATED": code_pb2.UNAUTHENTICATED,
    "PERMISSION_DENIED": code_pb2.PERMISSION_DENIED,
    "STREAM_NOT_FOUND": code_pb2.NOT_FOUND,
    "PARTITION_NOT_FOUND": code_pb2.NOT_FOUND,
    "STREAM_EXISTS": code_pb2.ALREADY_EXISTS,
    "VERSION_CONFLICT": code_pb2.ABORTED,
    "OFFSET_OUT_OF_RANGE": code_pb2.OUT_OF_RANGE,
    "LOG_TRUNCATED": code_pb2.OUT_OF_RANGE,
    "DATA_CORRUPT": code_pb2.DATA_LOSS,
    "NOT_ENOUGH_REPLICAS": code_pb2.UNAVAILABLE,
    "NOT_LEADER": code_pb2.UNAVAILABLE,
    "STOPPING": code_pb2.UNAVAILABLE,
    "UNAVAILABLE": code_pb2.UNAVAILABLE,
    "RESOURCE_EXHAUSTED": code_pb2.RESOURCE_EXHAUSTED,
    "DISK_FULL": code_pb2.RESOURCE_EXHAUSTED,
    "TIMED_OUT": code_pb2.DEADLINE_EXCEEDED,
    "STORAGE_FAILED": code_pb2.INTERNAL,
    "INTERNAL": code_pb2.INTERNAL,
}
"""Codes that are not here are FAILED_PRECONDITION: the state of log or producer forbids it."""


def rich_status(error: TidelogError) -> status_pb2.Status:
    """google.rpc.Status with ErrorInfo and, if the broker has an opinion, RetryInfo."""
    facts = {
        **error.details,
        "retriable": str(error.retriable).lower(),
        "definite": str(error.definite).lower(),
    }
    details = [error_details_pb2.ErrorInfo(reason=error.code, domain=DOMAIN, metadata=facts)]
    if error.retry_after_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(error.retry_after_ms)
        details.append(retry)
    packed = []
    for detail in details:
        entry = any_pb2.Any()
        entry.Pack(detail)
        packed.append(entry)
    code = _GRPC_CODES.get(error.code, code_pb2.FAILED_PRECONDITION)
    return status_pb2.Status(code=code, message=error.message, details=packed)


def internal_error(error: BaseException) -> InternalError:
    """What a client is told of a bug; the log has the rest."""
    return InternalError(
        f"the broker failed with an internal error ({type(error).__name__}); its log has the details"
    )


class RichStatus(grpc.Status):
    """What gRPC sends as the end of a call that failed."""

    def __init__(self, status: status_pb2.Status) -> None:
        codes = {code.value[0]: code for code in grpc.StatusCode}
        self.code = codes[status.code]
        self.details = status.message
        self.trailing_metadata = (("grpc-status-details-bin", status.SerializeToString()),)
