"""Opening a log after anything but a clean stop (DESIGN 4, 2a–2d).

The rules in short. Below the recovery point everything was durable: what is missing
there is corruption. Past it the kernel's boot id decides: the same boot means that the
page cache lived, so only a last batch inside which the file ends is torn; another boot
means that the pages of the last flush round reached the disk in any order, so the log
ends at the first unsound batch. A log is suspect if that batch lacks no part (`torn`), or
if a sound one stands behind it. Nothing is cut silently: what is cut is kept, and a log
whose end or history is unknown is quarantined as a whole.

Neighbours: `contents` reads what lies in a partition's folder, `scan` tells sound batches
from others, `store` decides which logs are opened.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.protocol import File
from tidelog_broker.storage.files.whole_files import flush_found, sync_found, write_all
from tidelog_broker.storage.folder import starting_over
from tidelog_broker.storage.folder.contents import Contents, check_identity, read_contents
from tidelog_broker.storage.folder.leader_epochs import FILE_NAME as EPOCHS_FILE
from tidelog_broker.storage.folder.leader_epochs import EpochsLost, LeaderEpochs, load_epochs, save_epochs
from tidelog_broker.storage.folder.page_cache_mark import FILE_NAME as PAGE_CACHE_FILE
from tidelog_broker.storage.folder.suspicion import write_suspicion
from tidelog_broker.storage.guard.snapshots import remove_guard_snapshots
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.tail_cache import TailCache
from tidelog_broker.storage.log.write_batch import FULL_DISK_ERRNOS, LogConfig
from tidelog_broker.storage.points import CleanEnd, PartitionKey, RecoveryPoint
from tidelog_broker.storage.segments.scan import (
    DamagedRange,
    Sound,
    Unsound,
    may_be_torn,
    scan,
    scan_segment,
)
from tidelog_broker.storage.segments.segment import Segment

COPY_BYTES = 4 << 20
"""Copied at a time into a `.cut-…` file."""


WHOLE_BATCHES = "there are whole batches in what was cut"


class Quarantine(Exception):
    """The end or the history of a log is unknown: its folder is set aside as it is (2c)."""


class LastRun(NamedTuple):
    """What the checkpoints of the last run say about one partition."""

    recovery_point: RecoveryPoint | None
    log_start_offset: int
    same_boot: bool
    """The kernel runs since before the last start of the broker, so the page cache lived."""


class Place(NamedTuple):
    """Which log, and where."""

    files: OpenFiles
    cache: TailCache
    folder: str
    key: PartitionKey
    config: LogConfig
    assignment: int = 0


def open_clean(place: Place, end: CleanEnd, log_start_offset: int) -> PartitionLog | None:
    """A log as a clean stop left it, without reading it; None when its files say otherwise."""
    check_identity(place.files, place.folder, place.key, place.assignment)
    if starting_over.is_marked(place.files.files, place.folder):
        return None
    contents = read_contents(place.files, place.folder, place.key, log_start_offset)
    segments = contents.segments
    if end.size == 0 and (not segments or segments[-1].base_offset < end.segment_base):
        # The active segment had no file yet. What lies below the LSO need not be there.
        if not segments and end.segment_base > log_start_offset:
            return None
        segments.append(Segment(place.files, place.folder, end.segment_base, place.key))
        if len(segments) > 1:
            segments[-2].next_offset, segments[-2].closed = end.segment_base, True
    active = segments[-1] if segments else None
    if active is None or active.base_offset != end.segment_base or active.size != end.size:
        return None
    active.next_offset = end.log_end_offset
    epochs = _epochs(place, whole=True)
    if epochs.recovered(end.log_end_offset) is not None:
        # The first write of an epoch failed, and its entry stayed.
        return None
    log = _log(place, contents, epochs, max(log_start_offset, segments[0].base_offset))
    log.know_damage(log.damaged)
    return log if log.start_offset <= log.end_offset else None


def recover(place: Place, last_run: LastRun) -> PartitionLog:
    """A log as a crash left it, brought to a state that is durable and true.

    Raises `Quarantine` and `Stray`, which leave everything as it is, `StorageFailure` and OSError.
    """
    check_identity(place.files, place.folder, place.key, place.assignment)
    emptied = _start_over(place)
    if emptied is not None:
        return emptied
    epochs = _epochs(place, whole=False)
    contents = read_contents(place.files, place.folder, place.key, last_run.log_start_offset)
    segments, point = contents.segments, last_run.recovery_point
    if not segments:
        if point is not None and point.offset > last_run.log_start_offset:
            raise Quarantine(f"all segments are gone; the log was durable up to offset {point.offset}")
        base = max(last_run.log_start_offset, point.offset if point else 0)
        segments.append(Segment(place.files, place.folder, base, place.key))
    tail = _Tail(place, epochs, last_run.same_boot)
    if _front_is_missing(segments, last_run):
        # As behind a hole further on: the first file's name never came to the disk, a later one's did.
        tail.set_aside(segments)
        segments[:] = [Segment(place.files, place.folder, last_run.log_start_offset, place.key)]
    at = _segment_of(segments, point)
    if at is None:
        at, position, expected = 0, 0, segments[0].base_offset
    else:
        assert point is not None
        position, expected = point.position, point.offset
    contents.segments = tail.scan(segments, at, position, expected)
    # What was renamed, created or removed may be known to the page cache only, also after
    # another boot: a start that died half-way leaves such things too.
    sync_found(place.files.files, place.folder)
    if tail.scanned:
        # Like the batches: the entries that were read may have been page cache only.
        with place.files.use(f"{place.folder}/{EPOCHS_FILE}") as file:
            flush_found(file, f"{place.folder}/{EPOCHS_FILE}")
    return _settle(place, contents, epochs, tail, last_run)


def _front_is_missing(segments: list[Segment], last_run: LastRun) -> bool:
    """Whether the log's first batches are gone, which no flush had made durable.

    Retention is not why: the start offset is durable before a file goes. Taken for the
    log's start, the gap would tell others that these offsets were deleted (R11).
    """
    first, point, start = segments[0], last_run.recovery_point, last_run.log_start_offset
    if first.base_offset <= start or (point and point.offset > start):
        return False
    if last_run.same_boot:
        raise Quarantine(f"{first.path} is the first segment, and the log begins at offset {start}")
    return True


def _settle(
    place: Place, contents: Contents, epochs: LeaderEpochs, tail: _Tail, last_run: LastRun
) -> PartitionLog:
    """Fits everything beside the batches to the end that was found, durably, before anything is appended."""
    files = place.files.files
    start = max(last_run.log_start_offset, contents.segments[0].base_offset)
    changed = emptied = False
    if contents.segments[-1].next_offset < start:
        # LEO < LSO: everything that is left lies below the start.
        for segment in contents.segments:
            segment.remove()
        contents.segments = [Segment(place.files, place.folder, start, place.key)]
        changed = emptied = True
    elif not last_run.same_boot or tail.cut_bytes:
        changed = contents.segments[-1].drop_stale_index()
    end = contents.segments[-1].next_offset
    if remove_guard_snapshots(place.files, place.folder, above=end) or changed:
        sync_found(files, place.folder)
    # The history of an emptied log would speak for records that are gone.
    kept = LeaderEpochs() if emptied else epochs.recovered(end)
    if kept is not None or _has_more(place, epochs):
        save_epochs(place.files, place.folder, *place.key, kept or epochs)
    log = _log(place, contents, kept or epochs, start)
    log.know_damage([*log.damaged, *tail.damaged])
    log.suspect = log.suspect or tail.suspect
    log.cut_bytes = tail.cut_bytes
    return log


def _has_more(place: Place, epochs: LeaderEpochs) -> bool:
    """Whether entries that never came to the disk left something behind the history: after a clean stop it
    would pass for damage."""
    with place.files.use(f"{place.folder}/{EPOCHS_FILE}") as file:
        return file.size() > epochs.file_bytes


def _start_over(place: Place) -> PartitionLog | None:
    """Goes on with what `PartitionLog.restart_at` began; who calls saves the start, then removes the mark."""
    try:
        beginning = starting_over.marked(place.files.files, place.folder)
    except starting_over.MarkLost as error:
        raise Quarantine(str(error)) from None
    if beginning is None:
        return None
    # The mark that was read may be known to the page cache only.
    sync_found(place.files.files, place.folder)
    starting_over.empty(place.files, place.folder, place.key, beginning.epochs)
    page_cache = place.files.files.exists(f"{place.folder}/{PAGE_CACHE_FILE}")
    segments = [Segment(place.files, place.folder, beginning.offset, place.key)]
    contents = Contents(segments, suspect=False, page_cache=page_cache)
    return _log(place, contents, beginning.epochs, beginning.offset)


def _log(place: Place, contents: Contents, epochs: LeaderEpochs, start_offset: int) -> PartitionLog:
    log = PartitionLog(
        place.files,
        place.cache,
        place.folder,
        *place.key,
        place.config,
        epochs=epochs,
        segments=contents.segments,
        start_offset=start_offset,
    )
    log.assignment = place.assignment
    log.page_cache = contents.page_cache
    log.suspect = contents.suspect
    log.damaged = contents.damaged
    return log


def _epochs(place: Place, *, whole: bool) -> LeaderEpochs:
    try:
        return load_epochs(place.files.files, place.folder, *place.key, whole=whole)
    except EpochsLost as error:
        raise Quarantine(str(error)) from None


def _segment_of(segments: list[Segment], point: RecoveryPoint | None) -> int | None:
    """Where scanning begins: the index of the recovery point's segment, None: the log's first byte.

    Raises `Quarantine` when the files end below it: that part was durable.
    """
    if point is None or segments[0].base_offset > point.segment_base:
        return None
    for at, segment in enumerate(segments):
        if segment.base_offset == point.segment_base:
            if segment.size < point.position:
                raise Quarantine(
                    f"{segment.path} has {segment.size} bytes; {point.position} were durable "
                    f"(recovery point, offset {point.offset})"
                )
            return at
    if point.position == 0 and segments[-1].base_offset < point.segment_base:
        # The recovery point is the start of a segment that had no file yet.
        last = segments[-1]
        last.next_offset, last.closed = point.segment_base, True
        segments.append(last.sibling(point.segment_base))
        return len(segments) - 1
    raise Quarantine(
        f"the segment {point.segment_base} is missing; it was durable up to offset {point.offset}"
    )


@dataclass(slots=True)
class _Tail:
    """The part past the recovery point: read from the disk itself (2a), ended where it ends (2b)."""

    place: Place
    epochs: LeaderEpochs
    same_boot: bool
    damaged: list[DamagedRange] = field(default_factory=list)
    suspect: bool = False
    cut_bytes: int = 0
    scanned: bool = False
    """There was anything past the recovery point."""

    def scan(self, segments: list[Segment], at: int, position: int, expected: int) -> list[Segment]:
        """The segments that are left of the log; scanning begins in number `at`."""
        if at > 0:
            self._check_end(segments[at - 1])
        for number in range(at, len(segments)):
            segment = segments[number]
            if segment.base_offset != expected and number > at:
                if self.same_boot:
                    raise Quarantine(f"{segment.path} does not follow offset {expected}")
                self.set_aside(segments[number:])
                return segments[:number]
            file_bytes = segment.size
            segment.size, segment.next_offset = position, expected
            is_last = number + 1 == len(segments)
            segment.closed = not is_last
            if file_bytes > position:
                self.scanned = True
                ended = self._scan_file(segment, file_bytes, is_last)
                if ended:
                    segment.closed = False
                    self.set_aside(segments[number + 1 :])
                    return segments[: number + 1]
            elif number == at and self.place.files.files.exists(segment.path):
                # The cut that ended it here may be known to the page cache only (R1).
                self.scanned = True
                with segment.opened() as file:
                    flush_found(file, segment.path)
            expected, position = segment.next_offset, 0
        return segments

    def _check_end(self, segment: Segment) -> None:
        """The segment in front of the scanned part was durable as a whole."""
        end = segment.base_offset
        for _, header in segment.walk_past_damage(max(segment.index.last_position, 0)):
            end = header.next_offset
        if end < segment.next_offset:
            found = scan_segment(segment)
            self.damaged += found.damaged
            segment.adopt_index(found.index, found.bytes)

    def _scan_file(self, segment: Segment, file_bytes: int, is_last: bool) -> bool:
        """Scans one file from `segment.size` on; whether the log ends in it before its last byte."""
        with segment.opened() as file:
            flush_found(file, segment.path)
            file.drop_cache(segment.size, file_bytes - segment.size)
            damaged_at: int | None = None
            for found in scan(file, segment.size, file_bytes, *segment.key, segment.next_offset):
                if isinstance(found, Unsound):
                    if self._is_end(segment, found, is_last):
                        doubt = _doubt(segment, file, found, file_bytes)
                        self._cut(segment, file, found.position, file_bytes, doubt)
                        return True
                    damaged_at = segment.next_offset
                    continue
                header = found.header
                if not self.epochs.knows(header.leader_epoch, header.base_offset):
                    self._unknown_epoch(segment, found)
                    # Never acknowledged: a flush makes the history durable before the batches.
                    self._cut(segment, file, found.position, file_bytes, None)
                    return True
                if damaged_at is not None:
                    self.damaged.append(DamagedRange(damaged_at, header.base_offset))
                    segment.skip_to(found.position, header.base_offset)
                    damaged_at = None
                segment.extend([header])
        return False

    def _is_end(self, segment: Segment, found: Unsound, is_last: bool) -> bool:
        """Whether the log ends at unsound bytes; else they are damage. Raises `Quarantine`."""
        if not self.same_boot or (found.cut_short and is_last):
            return True
        if found.next_position is None:
            raise Quarantine(f"{segment.path} at {found.position}: {found.reason}; nothing sound follows")
        return False

    def _unknown_epoch(self, segment: Segment, found: Sound) -> None:
        if self.same_boot:
            header = found.header
            raise Quarantine(
                f"{segment.path} has a batch of leader epoch {header.leader_epoch} at offset "
                f"{header.base_offset}, of which leader-epochs knows nothing"
            )

    def _cut(self, segment: Segment, file: File, position: int, file_bytes: int, doubt: str | None) -> None:
        """Ends the log at the unsound bytes, which are kept beside it (2b).

        `doubt`: why they may have been acknowledged; None: they were not.
        """
        files = self.place.files.files
        rest = file_bytes - position
        # A size that came to the disk without its pages reads as zeros: nothing to keep.
        if doubt or rest > COPY_BYTES or file.pread(rest, position).strip(b"\0"):
            try:
                _keep(self.place, segment, position, file_bytes)
            except OSError as error:
                # A full disk must not keep a broker down for a batch that was never whole.
                if doubt or error.errno not in FULL_DISK_ERRNOS:
                    raise
            self.cut_bytes += file_bytes - position
        if doubt:
            self._suspect(segment, position, doubt)
        file.truncate(position)
        flush_found(file, segment.path)
        sync_found(files, self.place.folder)

    def set_aside(self, segments: list[Segment]) -> None:
        """Renames whole segments behind the log's end out of the way."""
        files = self.place.files
        for segment in segments:
            segment.remove_index()
            files.forget(segment.path)
            if segment.size == 0:
                if files.files.exists(segment.path):
                    files.files.remove(segment.path)
                continue
            self._suspect(segment, 0, WHOLE_BATCHES)
            self.cut_bytes += segment.size
            files.files.rename(segment.path, _free_name(self.place, f"{segment.path}.cut-0"))
        if segments:
            sync_found(files.files, self.place.folder)

    def _suspect(self, segment: Segment, position: int, doubt: str) -> None:
        if not self.suspect:
            name = segment.path.rpartition("/")[2]
            write_suspicion(
                self.place.files.files,
                self.place.folder,
                f"recovery cut {name} from byte {position} on: {doubt}",
            )
            self.suspect = True


def _doubt(segment: Segment, file: File, found: Unsound, file_bytes: int) -> str | None:
    """Why what is cut may have been acknowledged; None: it is what a torn write leaves (2b)."""
    if found.next_position is not None:
        return WHOLE_BATCHES
    if not may_be_torn(file, found, file_bytes, *segment.key):
        return f"{found.reason}, and no part is missing, as after a write that was cut short"
    return None


def _keep(place: Place, segment: Segment, start: int, end: int) -> None:
    """Copies cut bytes into a `.cut-…` file that does not exist yet."""
    files = place.files.files
    path = _free_name(place, f"{segment.path}.cut-{start}")
    try:
        copy = files.open(path, create=True)
        try:
            with segment.opened() as source:
                for position in range(start, end, COPY_BYTES):
                    data = source.pread(min(COPY_BYTES, end - position), position)
                    write_all(copy, [data], position - start)
            copy.datasync()
        finally:
            copy.close()
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(path)
        raise
    files.sync_dir(place.folder)


def _free_name(place: Place, path: str) -> str:
    number, free = 0, path
    while place.files.files.exists(free):
        number += 1
        free = f"{path}.{number}"
    return free
