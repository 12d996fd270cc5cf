"""R13: whether a reader's position agrees with the log's history.

A position is an offset and the epoch of the last record read. If a leader was replaced
while it held records that the new leader lacks, a reader of the old leader has a position at which the
new log has other records, or no records: it must get an error, not the records from there.
"""

from __future__ import annotations

from tidelog.errors import LogTruncated, OffsetOutOfRange


def check_position(
    offset: int,
    epoch: int | None,
    *,
    first: tuple[int, int, bool] | None,
    end_of_epoch: tuple[int, int] | None,
    log_start_offset: int,
    log_end_offset: int,
) -> None:
    """Raises `OffsetOutOfRange` or, with the point of divergence, `LogTruncated`.

    `epoch` None: only the offset is checked. `first` is the oldest entry of the history
    (epoch, start offset, …); `end_of_epoch` the largest known epoch ≤ `epoch` with its
    end offset, None if there is none.
    """
    if offset < log_start_offset:
        raise OffsetOutOfRange(
            f"offset {offset} is below the log start offset {log_start_offset}",
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
        )
    if epoch is None:
        if offset > log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is beyond the log end offset {log_end_offset}",
                log_start_offset=log_start_offset,
                log_end_offset=log_end_offset,
            )
        return
    if end_of_epoch is None:
        # The epoch is older than the history: retention dropped its entry, so only its end is known.
        limit = log_end_offset if first is None else first[1]
        if offset > limit:
            raise _truncated(offset, epoch, limit, None)
        return
    known, end = end_of_epoch
    if known != epoch or offset > end:
        raise _truncated(offset, epoch, min(end, offset), known)


def _truncated(offset: int, epoch: int, divergence: int, known: int | None) -> LogTruncated:
    facts: dict[str, object] = {"divergence_offset": divergence}
    if known is not None:
        facts["divergence_epoch"] = known
    return LogTruncated(
        f"the log has no record before offset {offset} of leader epoch {epoch}; it agrees with the position "
        f"up to offset {divergence}",
        **facts,  # type: ignore[arg-type]
    )
