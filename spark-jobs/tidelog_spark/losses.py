"""What a streaming query can no longer read of the records behind its position. Pure.

Retention has deleted them, the stream was deleted or created again, or the log was truncated. `stream`
raises these errors or logs them, as `failOnDataLoss` says.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.errors import LogTruncated, OffsetOutOfRange, StreamNotFound, TidelogError
from tidelog.model import id_text
from tidelog_spark.offsets import Mark, Offsets, PartitionKey
from tidelog_spark.options import Chosen
from tidelog_spark.positions import Reach


def losses(begin: Offsets, reach: Reach, chosen: Chosen) -> Iterator[TidelogError]:
    """The reasons why a query that stands at `begin` cannot continue everywhere."""
    for key, mark in begin.items():
        now = reach.marks.get(key)
        error = _gone(key, mark, chosen) if now is None else _changed(key, mark, now)
        if error is not None:
            yield error


def _gone(key: PartitionKey, mark: Mark, chosen: Chosen) -> TidelogError | None:
    """The loss of a partition that is not there; None: the options no longer choose it.

    A query may drop streams between two runs. With a pattern a stream that is gone was deleted, or the
    pattern is another one now; the query continues without it in both cases only if loss is allowed.
    """
    if chosen.pattern is None and not _named(key, chosen):
        return None
    reason = "no longer exists"
    if chosen.pattern is not None:
        reason = f"no longer exists, or no longer matches the pattern {chosen.pattern!r}"
    return StreamNotFound(f"the partition {key} of the stream with id {id_text(mark.stream_id)} {reason}")


def _named(key: PartitionKey, chosen: Chosen) -> bool:
    if chosen.assigned is None:
        return key.stream in chosen.streams
    return key.partition in chosen.assigned.get(key.stream, ())


def _changed(key: PartitionKey, mark: Mark, now: Mark) -> TidelogError | None:
    """The reason why a query at `mark` cannot continue in a log with the mark `now`; None: it can."""
    if now.stream_id != mark.stream_id:
        return StreamNotFound(
            f"the stream {key.stream} that this query read ({id_text(mark.stream_id)}) was deleted, "
            f"and another stream has its name now ({id_text(now.stream_id)})"
        )
    at = mark.position.offset
    if at < now.first:
        return OffsetOutOfRange(f"{key} begins at offset {now.first}, but the query has read only up to {at}")
    if at > now.position.offset:
        return LogTruncated(f"{key} ends at offset {now.position.offset}, but the query has read up to {at}")
    return None
