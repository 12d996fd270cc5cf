"""The errors of the library and of the brokers, sorted by what the caller can do about them.

Every error answers two questions. *Retriable*: may the same request succeed later, unchanged?
*Definite*: did the request certainly have no effect? A definite error that is not retriable means that
the request is wrong. After an indefinite error the caller must find out whether the request was
executed; an idempotent producer may send the same batch again.

The codes are those of ``ErrorCode`` in ``proto/tidelog_proto/common.proto``. Broker and client share
these classes, so an error keeps its type on the wire.
"""

from __future__ import annotations

from typing import ClassVar


class TidelogError(Exception):
    """The base class of all errors.

    ``details`` holds facts for programs (names and values are strings). ``retry_after_ms`` is the time
    that the broker asks the client to wait before the next attempt (None: the broker gave none).
    """

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = True

    def __init__(self, message: str, *, retry_after_ms: int | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.details: dict[str, str] = {name: str(value) for name, value in details.items()}

    def __str__(self) -> str:
        return self.message


# --- The request is wrong: correct it, do not repeat it.


class InvalidRequest(TidelogError):
    """A field of the request, or an argument, has a value that is never allowed."""

    code = "INVALID_REQUEST"


class UnsupportedVersion(InvalidRequest):
    """The batch has a schema version, attribute or feature that this software does not know (F4)."""

    code = "UNSUPPORTED_VERSION"


class CorruptBatch(InvalidRequest):
    """The record batch breaks the format (F1): bad magic, length, CRC, schema or content."""

    code = "CORRUPT_BATCH"


class BatchTooLarge(InvalidRequest):
    """The batch or record is larger than its limit, encoded or decoded (F3)."""

    code = "BATCH_TOO_LARGE"


class InvalidTimestamp(InvalidRequest):
    """The timestamp of a record is further in the future than the stream allows."""

    code = "INVALID_TIMESTAMP"


class FeatureNotImplemented(InvalidRequest):
    """The interface defines this request, but this version does not implement it."""

    code = "NOT_IMPLEMENTED"


class Unauthenticated(TidelogError):
    """The client has shown no credentials, or credentials that are not valid, or not any more (A2, A3)."""

    code = "UNAUTHENTICATED"


class PermissionDenied(TidelogError):
    """The principal may not do this (A4). The answer is the same whether the stream exists or not (A8)."""

    code = "PERMISSION_DENIED"


# --- The stream or partition in the request does not exist, or has changed.


class StreamNotFound(TidelogError):
    """No stream has this name or id."""

    code = "STREAM_NOT_FOUND"


class StreamExists(TidelogError):
    """A stream with this name exists, with other settings."""

    code = "STREAM_EXISTS"


class PartitionNotFound(TidelogError):
    """The stream has no partition with this number."""

    code = "PARTITION_NOT_FOUND"

    @classmethod
    def numbered(cls, partition: int, *, stream: str, count: int) -> PartitionNotFound:
        """The error for a number that the stream's `count` partitions, which begin at 0, do not have."""
        has = f"partitions 0–{count - 1}" if count > 1 else "only partition 0"
        return cls(f"stream {stream} has {has}, not {partition}")


class VersionConflict(TidelogError):
    """The stream, partition or broker has changed since the version that the caller expects."""

    code = "VERSION_CONFLICT"


# --- Positions: read from another offset.


class OffsetOutOfRange(TidelogError):
    """The offset is below the log start offset (R11) or beyond the log end offset; details name both."""

    code = "OFFSET_OUT_OF_RANGE"


class LogTruncated(TidelogError):
    """The position (offset and epoch) does not fit the log's history (R13); details name the divergence."""

    code = "LOG_TRUNCATED"


class DataCorrupt(TidelogError):
    """The bytes on disk fail their checksum. The broker returns an error instead of wrong records (2c)."""

    code = "DATA_CORRUPT"


# --- Leadership and replication: try again, possibly at another broker.


class NotLeader(TidelogError):
    """This broker does not lead the partition; details name the leader, if the broker knows it."""

    code = "NOT_LEADER"
    retriable = True


class FencedLeaderEpoch(TidelogError):
    """The leader epoch in the request is older than the partition's (R2)."""

    code = "FENCED_LEADER_EPOCH"
    retriable = True


class UnknownLeaderEpoch(TidelogError):
    """The leader epoch in the request is newer than the one that this broker knows (R2)."""

    code = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class NotEnoughReplicas(TidelogError):
    """The in-sync replica set is smaller than its minimum; nothing was appended (R7)."""

    code = "NOT_ENOUGH_REPLICAS"
    retriable = True


# --- Conditional and idempotent appends (R8, R9).


class UnknownProducer(TidelogError):
    """The log no longer knows this producer id, or the id was never given out. Get a new id."""

    code = "UNKNOWN_PRODUCER"


class FencedProducer(TidelogError):
    """A producer with the same id and a newer epoch has written."""

    code = "FENCED_PRODUCER"


class OutOfOrderSequence(TidelogError):
    """A batch of this producer before this one is missing in the log."""

    code = "OUT_OF_ORDER_SEQUENCE"
    retriable = True


class DuplicateSequence(TidelogError):
    """The batch is in the log already, but so far back that its offset is no longer known."""

    code = "DUPLICATE_SEQUENCE"


class IndeterminateReplay(TidelogError):
    """A sink writes a batch again with other rows than those in the log (S2). Nothing was appended."""

    code = "INDETERMINATE_REPLAY"


class UnexpectedOffset(TidelogError):
    """The log end offset is not the `expected_offset` of the conditional append (R9)."""

    code = "UNEXPECTED_OFFSET"


class PrecedingFailed(TidelogError):
    """An earlier batch for this partition failed on the same call; send again, the first with ``reset``."""

    code = "PRECEDING_FAILED"
    retriable = True


# --- The broker cannot execute the request now: nothing happened, try later.


class ResourceExhausted(TidelogError):
    """A named limit is reached; ``retry_after_ms`` says when to try again."""

    code = "RESOURCE_EXHAUSTED"
    retriable = True


class DiskFull(ResourceExhausted):
    """The broker's volume is full. The write was refused before it began; reads still work."""

    code = "DISK_FULL"


class Stopping(TidelogError):
    """The broker is shutting down."""

    code = "STOPPING"
    retriable = True


class Unavailable(TidelogError):
    """The broker cannot be reached, or cannot serve the request yet; nothing happened."""

    code = "UNAVAILABLE"
    retriable = True


# --- Indefinite: the request may have been executed or not.


class IndefiniteError(TidelogError):
    """The base class of errors after which the request may have been executed or not."""

    definite = False


class TimedOut(IndefiniteError):
    """No answer came within the time of the request."""

    code = "TIMED_OUT"
    retriable = True


class ConnectionLost(IndefiniteError):
    """The connection broke after the request was sent."""

    code = "UNAVAILABLE"
    retriable = True


class StorageFailed(IndefiniteError):
    """A write or a flush failed. After a failed flush, or a write that cannot be undone, the broker stops."""

    code = "STORAGE_FAILED"


class InternalError(IndefiniteError):
    """A bug in Tidelog: please report it."""

    code = "INTERNAL"


def _by_code() -> dict[str, type[TidelogError]]:
    found: dict[str, type[TidelogError]] = {}
    pending: list[type[TidelogError]] = [TidelogError]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if "code" in cls.__dict__ and cls is not ConnectionLost:
            found[cls.code] = cls
    found["INTERNAL"] = InternalError
    return found


_CLASSES = _by_code()


def error_from_code(
    code: str, message: str, details: dict[str, str] | None = None, retry_after_ms: int | None = None
) -> TidelogError:
    """The typed error for a code from the wire; `InternalError` for an unknown code."""
    error = _CLASSES.get(code, InternalError)(message, retry_after_ms=retry_after_ms)
    error.details.update(details or {})
    return error
