"""Everything that can go wrong, sorted by what the caller can do about it.

Every error answers two questions. *Retriable*: may the same request succeed later,
unchanged? *Definite*: did it certainly have no effect? An error that is neither is a
bug or a request that is wrong; one that is not definite leaves the caller to find out
(an idempotent producer may simply send the batch again).

The codes are those of ``ErrorCode`` in ``proto/tidelog_proto/common.proto``; broker and
client share these classes, so that an error crosses the wire without losing its type.
"""

from __future__ import annotations

from typing import ClassVar


class TidelogError(Exception):
    """The root of the tree.

    ``details`` holds facts for programs (strings), ``retry_after_ms`` the broker's
    opinion of when to try again (None: it has none).
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


# --- The request is wrong: mend it, do not repeat it.


class InvalidRequest(TidelogError):
    """A field of the request has a value that can never be right."""

    code = "INVALID_REQUEST"


class UnsupportedVersion(InvalidRequest):
    """A schema version, attribute or feature that this software does not know (F4)."""

    code = "UNSUPPORTED_VERSION"


class CorruptBatch(InvalidRequest):
    """A record batch that breaks the format (F1): bad magic, length, CRC, schema or content."""

    code = "CORRUPT_BATCH"


class BatchTooLarge(InvalidRequest):
    """A batch or record over its limit, encoded or decoded (F3)."""

    code = "BATCH_TOO_LARGE"


class InvalidTimestamp(InvalidRequest):
    """A record's timestamp lies further in the future than the stream allows."""

    code = "INVALID_TIMESTAMP"


class FeatureNotImplemented(InvalidRequest):
    """The interface has a place for it, this version does not do it."""

    code = "NOT_IMPLEMENTED"


# --- What the request names is not there, or is another one by now.


class StreamNotFound(TidelogError):
    """No stream has this name or id now."""

    code = "STREAM_NOT_FOUND"


class StreamExists(TidelogError):
    """A stream of this name is there, with other settings."""

    code = "STREAM_EXISTS"


class PartitionNotFound(TidelogError):
    """The stream has fewer partitions."""

    code = "PARTITION_NOT_FOUND"


class VersionConflict(TidelogError):
    """The stream, partition or broker changed since the version that the caller saw."""

    code = "VERSION_CONFLICT"


# --- Positions: read again from somewhere else.


class OffsetOutOfRange(TidelogError):
    """Below the log start offset (R11) or beyond the end; details name both ends."""

    code = "OFFSET_OUT_OF_RANGE"


class LogTruncated(TidelogError):
    """The position does not fit the log's history (R13); details name the divergence."""

    code = "LOG_TRUNCATED"


class DataCorrupt(TidelogError):
    """The bytes on disk fail their checksum; nothing wrong is ever returned (2c)."""

    code = "DATA_CORRUPT"


# --- Leadership and replication: ask again, perhaps elsewhere.


class NotLeader(TidelogError):
    """This broker does not lead the partition; details name the leader, if one is known."""

    code = "NOT_LEADER"
    retriable = True


class FencedLeaderEpoch(TidelogError):
    """The sender's leader epoch is over (R2)."""

    code = "FENCED_LEADER_EPOCH"
    retriable = True


class UnknownLeaderEpoch(TidelogError):
    """The sender knows of a later leader epoch than this broker (R2)."""

    code = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class NotEnoughReplicas(TidelogError):
    """The in-sync replica set is below its minimum; nothing was appended (R7)."""

    code = "NOT_ENOUGH_REPLICAS"
    retriable = True


# --- Conditional and idempotent appends (R8, R9).


class UnknownProducer(TidelogError):
    """The log has forgotten this producer, or nobody gave its id out: it must start again with a new one."""

    code = "UNKNOWN_PRODUCER"


class FencedProducer(TidelogError):
    """A newer epoch of this producer has written."""

    code = "FENCED_PRODUCER"


class OutOfOrderSequence(TidelogError):
    """A batch before this one is missing."""

    code = "OUT_OF_ORDER_SEQUENCE"
    retriable = True


class DuplicateSequence(TidelogError):
    """The batch was appended earlier; so long ago that its offset is no longer known."""

    code = "DUPLICATE_SEQUENCE"


class UnexpectedOffset(TidelogError):
    """The log end offset is not the one that the conditional append named (R9)."""

    code = "UNEXPECTED_OFFSET"


class PrecedingFailed(TidelogError):
    """An earlier batch of this partition failed on the call; send again, the first with ``reset``."""

    code = "PRECEDING_FAILED"
    retriable = True


# --- The broker cannot do it now: nothing happened, try later.


class ResourceExhausted(TidelogError):
    """A named limit is reached; ``retry_after_ms`` says when to come back."""

    code = "RESOURCE_EXHAUSTED"
    retriable = True


class DiskFull(ResourceExhausted):
    """The broker's volume has no room: refused before anything was written; reads go on."""

    code = "DISK_FULL"


class Stopping(TidelogError):
    """The broker is leaving."""

    code = "STOPPING"
    retriable = True


class Unavailable(TidelogError):
    """The broker could not be reached, or cannot serve this yet; nothing happened."""

    code = "UNAVAILABLE"
    retriable = True


# --- Indefinite: it may or may not have happened.


class IndefiniteError(TidelogError):
    """The root of those that leave it open whether the request had an effect."""

    definite = False


class TimedOut(IndefiniteError):
    """No answer within the request's time."""

    code = "TIMED_OUT"
    retriable = True


class ConnectionLost(IndefiniteError):
    """The connection broke after the request was sent."""

    code = "UNAVAILABLE"
    retriable = True


class StorageFailed(IndefiniteError):
    """A write or a flush failed. After a flush, or a write that cannot be undone, the broker ends."""

    code = "STORAGE_FAILED"


class InternalError(IndefiniteError):
    """A bug: please report it."""

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
    """The typed error for a code that came over the wire; an unknown code is an `InternalError`."""
    error = _CLASSES.get(code, InternalError)(message, retry_after_ms=retry_after_ms)
    error.details.update(details or {})
    return error
