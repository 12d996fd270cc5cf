"""Opening a log after anything but a clean stop (DESIGN 4, 2a–2d).

The rules in short. Below the recovery point everything was durable: what is missing
there is corruption. Past it the kernel's boot id decides: the same boot means that the
page cache lived, so only a last batch inside which the file ends is torn; another boot
means that the pages of the last flush round reached the disk in any order, so the log
ends at the first unsound batch. Nothing is cut silently: what is cut is kept, and a log
whose end or history is unknown is quarantined as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.records import BatchHeader
from tidelog_broker.storage.checkpoint import CleanEnd, RecoveryPoint
from tidelog_broker.storage.epochs import FILE_NAME as EPOCHS_FILE
from tidelog_broker.storage.epochs import EpochsLost, LeaderEpochs, load_epochs, save_epochs
from tidelog_broker.storage.files import OpenFiles, write_all
from tidelog_broker.storage.guard_snapshots import remove_guard_snapshots
from tidelog_broker.storage.identity import read_identity
from tidelog_broker.storage.log import LogConfig, PartitionLog
from tidelog_broker.storage.scan import DamagedRange, Sound, Unsound, scan
from tidelog_broker.storage.segment import Segment, segment_base
from tidelog_broker.storage.tail_cache import TailCache

COPY_BYTES = 4 << 20
"""Copied at a time into a `.cut-…` file."""


class Quarantine(Exception):
    """The end or the history of a log is unknown: its folder is set aside as it is (2c)."""


class Stray(Exception):
    """The folder belongs to another partition: it is kept and reported (2d)."""


class LastRun(NamedTuple):
    """What the checkpoints of the last run say about one partition."""

    recovery_point: RecoveryPoint | None
    log_start_offset: int
    same_boot: bool
    """The kernel runs since before the last start of the broker, so the page cache lived."""


@dataclass(slots=True)
class _Tail:
    """What the part past the recovery point turned out to be."""

    segments: list[Segment]
    damaged: list[DamagedRange]
    last: BatchHeader | None = None
    suspect: bool = False
    cut_bytes: int = 0
    epoch_max: int = -1


def open_clean(
    files: OpenFiles,
    cache: TailCache,
    folder: str,
    stream_id: bytes,
    partition: int,
    config: LogConfig,
    end: CleanEnd,
    log_start_offset: int,
) -> PartitionLog | None:
    """A log as a clean stop left it, without reading it; None when its files say otherwise."""
    segments = _segments(files, folder)
    _check_identity(files, folder, stream_id, partition)
    if not segments:
        if end.size:
            return None
        segments = [Segment(files, folder, end.segment_base)]
    active = segments[-1]
    if active.base_offset != end.segment_base or active.size != end.size:
        return None
    active.next_offset = end.log_end_offset
    epochs = _epochs(files, folder, stream_id, partition)
    start = max(log_start_offset, segments[0].base_offset)
    return PartitionLog(
        files, cache, folder, stream_id, partition, config,
        epochs=epochs, segments=segments, start_offset=start,
    )  # fmt: skip


def recover(
    files: OpenFiles,
    cache: TailCache,
    folder: str,
    stream_id: bytes,
    partition: int,
    config: LogConfig,
    last_run: LastRun,
) -> PartitionLog:
    """A log as a crash left it, brought to a state that is durable and true.

    Raises `Quarantine` and `Stray`, which leave everything as it is, and OSError.
    """
    _check_identity(files, folder, stream_id, partition)
    epochs = _epochs(files, folder, stream_id, partition)
    segments = _segments(files, folder)
    point = last_run.recovery_point
    if not segments:
        if point is not None and point.offset > last_run.log_start_offset:
            raise Quarantine(f"all segments are gone; the log was durable up to offset {point.offset}")
        base = max(last_run.log_start_offset, point.offset if point else 0)
        segments = [Segment(files, folder, base)]
    at = _segment_of(segments, point)
    position, expected = (point.position, point.offset) if point is not None and at is not None else (0, None)
    if at is None:
        at = 0
    if expected is None:
        expected = segments[at].base_offset
    tail = _scan_tail(files, segments, at, position, expected, stream_id, partition, last_run.same_boot)
    _check_history(epochs, tail)
    if tail.last is not None:
        # Like the batches: the entries that were read may have been page cache only.
        with files.use(f"{folder}/{EPOCHS_FILE}") as file:
            file.datasync()
    log = _assemble(
        files, cache, folder, stream_id, partition, config, epochs, tail, last_run.log_start_offset
    )
    end = log.end_offset
    if epochs.cut(end):
        save_epochs(files, folder, stream_id, partition, epochs)
    remove_guard_snapshots(files.files, folder, above=end)
    return log


def _check_identity(files: OpenFiles, folder: str, stream_id: bytes, partition: int) -> None:
    found = read_identity(files.files, folder)
    if found is None:
        raise Quarantine("the identity file is missing or damaged")
    if found != (stream_id, partition):
        raise Stray(f"the identity file says stream {found[0].hex()} partition {found[1]}")


def _epochs(files: OpenFiles, folder: str, stream_id: bytes, partition: int) -> LeaderEpochs:
    try:
        return load_epochs(files.files, folder, stream_id, partition)
    except EpochsLost as error:
        raise Quarantine(str(error)) from None


def _segments(files: OpenFiles, folder: str) -> list[Segment]:
    """The segments by their names, oldest first; sizes from the file system, ends from the next base."""
    bases = sorted(b for b in map(segment_base, files.files.list(folder)) if b is not None)
    segments = [Segment(files, folder, base) for base in bases]
    for segment, following in zip(segments, [*bases[1:], None], strict=True):
        segment.size = files.files.file_size(segment.path)
        if following is not None:
            segment.next_offset = following
    return segments


def _segment_of(segments: list[Segment], point: RecoveryPoint | None) -> int | None:
    """Where scanning begins: the index of the recovery point's segment, None: the log's first byte.

    Raises `Quarantine` when the files end below it: that part was durable.
    """
    if point is None:
        return None
    for at, segment in enumerate(segments):
        if segment.base_offset == point.segment_base:
            if segment.size < point.position:
                raise Quarantine(
                    f"{segment.path} has {segment.size} bytes; {point.position} were durable "
                    f"(recovery point, offset {point.offset})"
                )
            segment.next_offset = point.offset
            return at
    if point.position == 0 and segments[-1].base_offset < point.segment_base:
        # The recovery point is the start of a segment that had no file yet. What lies
        # before it is complete; its end is checked like any part below the point.
        fresh = segments[0].sibling(point.segment_base)
        segments[-1].next_offset = point.segment_base
        segments.append(fresh)
        return len(segments) - 1
    if segments[0].base_offset >= point.offset:
        return None
    raise Quarantine(f"the segment {point.segment_base} is missing; it was durable up to offset {point.offset}")


def _scan_tail(
    files: OpenFiles,
    segments: list[Segment],
    at: int,
    position: int,
    expected: int,
    stream_id: bytes,
    partition: int,
    same_boot: bool,
) -> _Tail:
    """Checks everything past the recovery point from the disk itself (2a) and finds the log's end (2b)."""
    tail = _Tail(segments[: at + 1], [])
    while True:
        segment = segments[at]
        file_bytes = segment.size
        segment.size, segment.next_offset = position, expected
        ended = _scan_file(segment, file_bytes, stream_id, partition, same_boot, tail, at + 1 == len(segments))
        if file_bytes:
            files.files.sync_dir(segment.path.rsplit("/", 1)[0])
        expected = segment.next_offset
        at += 1
        if ended:
            for rest in segments[at:]:
                _set_aside(files, rest, tail)
            return tail
        if at == len(segments):
            return tail
        if segments[at].base_offset != expected:
            if same_boot:
                raise Quarantine(f"{segments[at].path} does not follow offset {expected}")
            for rest in segments[at:]:
                _set_aside(files, rest, tail)
            return tail
        tail.segments.append(segments[at])
        position = 0


def _scan_file(
    segment: Segment,
    file_bytes: int,
    stream_id: bytes,
    partition: int,
    same_boot: bool,
    tail: _Tail,
    is_last: bool,
) -> bool:
    """Scans one file from `segment.size` on; whether the log ends in it before its last byte."""
    if file_bytes == segment.size:
        return False
    with segment.opened() as file:
        file.datasync()
        file.drop_cache(segment.size, file_bytes - segment.size)
        expected = segment.next_offset
        headers: list[BatchHeader] = []
        damaged_at: int | None = None
        for found in scan(file, segment.size, file_bytes, stream_id, partition, expected):
            if isinstance(found, Sound):
                if damaged_at is not None:
                    tail.damaged.append(DamagedRange(damaged_at, found.header.base_offset))
                    segment.skip_to(found.position, found.header.base_offset)
                    damaged_at = None
                segment.extend([found.header])
                headers.append(found.header)
                tail.last = found.header
                tail.epoch_max = max(tail.epoch_max, found.header.leader_epoch)
                continue
            if same_boot and not (found.cut_short and is_last):
                if found.next_position is None:
                    raise Quarantine(f"{segment.path} at {found.position}: {found.reason}; nothing sound follows")
                damaged_at = segment.next_offset
                continue
            _cut(segment, file_bytes, found, tail)
            return True
    return False


def _cut(segment: Segment, file_bytes: int, found: Unsound, tail: _Tail) -> None:
    """Ends the log at the unsound bytes, which are kept beside it (2b)."""
    with segment.opened() as file:
        _keep(segment, found.position, file_bytes)
        file.truncate(found.position)
        file.datasync()
    tail.cut_bytes += file_bytes - found.position
    tail.suspect = tail.suspect or found.next_position is not None


def _keep(segment: Segment, start: int, end: int) -> None:
    """Copies cut bytes into a `.cut-…` file that does not exist yet."""
    files = segment.files
    path, number = f"{segment.path}.cut-{start}", 0
    while files.exists(path):
        number += 1
        path = f"{segment.path}.cut-{start}.{number}"
    copy = files.open(path, create=True)
    try:
        with segment.opened() as source:
            for position in range(start, end, COPY_BYTES):
                data = source.pread(min(COPY_BYTES, end - position), position)
                write_all(copy, [data], position - start)
        copy.datasync()
    finally:
        copy.close()
    files.sync_dir(path.rsplit("/", 1)[0])


def _set_aside(files: OpenFiles, segment: Segment, tail: _Tail) -> None:
    """Renames a whole segment behind the log's end out of the way."""
    path, number = f"{segment.path}.cut-0", 0
    while files.files.exists(path):
        number += 1
        path = f"{segment.path}.cut-0.{number}"
    tail.cut_bytes += segment.size
    tail.suspect = tail.suspect or segment.size > 0
    segment.remove_index()
    files.forget(segment.path)
    files.files.rename(segment.path, path)
    files.files.sync_dir(path.rsplit("/", 1)[0])


def _check_history(epochs: LeaderEpochs, tail: _Tail) -> None:
    """Every epoch in the log has its entry: the entry is durable no later than the batch (R5)."""
    if tail.epoch_max >= 0 and (epochs.latest is None or tail.epoch_max > epochs.latest):
        raise Quarantine(
            f"the log has batches of leader epoch {tail.epoch_max}, leader-epochs ends with {epochs.latest}"
        )


def _assemble(
    files: OpenFiles,
    cache: TailCache,
    folder: str,
    stream_id: bytes,
    partition: int,
    config: LogConfig,
    epochs: LeaderEpochs,
    tail: _Tail,
    log_start_offset: int,
) -> PartitionLog:
    segments = tail.segments
    start = max(log_start_offset, segments[0].base_offset)
    if segments[-1].next_offset < start:
        # LEO < LSO: everything that is left lies below the start.
        for segment in segments:
            _set_aside(files, segment, tail)
        segments = [Segment(files, folder, start)]
    log = PartitionLog(
        files, cache, folder, stream_id, partition, config,
        epochs=epochs, segments=segments, start_offset=start,
    )  # fmt: skip
    log.damaged = [damage for damage in tail.damaged if damage.end > start]
    log.suspect = tail.suspect
    log.cut_bytes = tail.cut_bytes
    if tail.last is not None:
        log.last_append_us = tail.last.append_time_us
    return log
