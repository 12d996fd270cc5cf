"""Opens a log after any stop, clean or not (DESIGN 4, 2a–2d).

The rules in short. Below the recovery point everything was durable, so missing bytes there
are corruption. Past it, the kernel's boot id decides:

- The same boot means that the page cache survived. So a batch can be torn only if it is the
  last batch and the file ends inside it.
- Another boot means that the pages of the last flush round reached the disk in any order. So
  the log ends at the first unsound batch.

A log is suspect if the unsound batch at its end lacks no part (`segments.scan.may_be_torn`), or if a
sound batch follows it. Nothing is cut silently: the cut bytes are kept, and a log whose end or
history is unknown is quarantined as a whole.

Neighbours: `contents` reads a partition's folder, `scan` tells sound batches from unsound
batches, `opening` decides which logs are opened.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_broker.storage.files.whole_files import flush_found, sync_found
from tidelog_broker.storage.folder import starting_over
from tidelog_broker.storage.folder.contents import Contents, check_identity, read_contents
from tidelog_broker.storage.folder.leader_epochs import FILE_NAME as EPOCHS_FILE
from tidelog_broker.storage.folder.leader_epochs import EpochsLost, LeaderEpochs, load_epochs, save_epochs
from tidelog_broker.storage.folder.page_cache_mark import FILE_NAME as PAGE_CACHE_FILE
from tidelog_broker.storage.guard.snapshots import remove_guard_snapshots
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.recovery_scan import Place, Quarantine, RecoveryScan
from tidelog_broker.storage.points import CleanEnd, RecoveryPoint
from tidelog_broker.storage.segments.segment import Segment


class LastRun(NamedTuple):
    """The state of one partition in the checkpoints of the last run."""

    recovery_point: RecoveryPoint | None
    log_start_offset: int
    same_boot: bool
    """The kernel has not booted since the last start of the broker, so the page cache survived."""


def open_clean(place: Place, end: CleanEnd, log_start_offset: int) -> PartitionLog | None:
    """Opens a log that a clean stop left, without reading it; None if its files do not match the mark."""
    check_identity(place.files, place.folder, place.key, place.assignment)
    if starting_over.is_marked(place.files.files, place.folder):
        return None
    contents = read_contents(place.files, place.folder, place.key, log_start_offset)
    segments = contents.segments
    if end.size == 0 and (not segments or segments[-1].base_offset < end.segment_base):
        # The active segment had no file yet. Segments below the LSO may be missing.
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
        # The first write of an epoch failed, and the epoch's entry stayed in the file.
        return None
    log = _log(place, contents, epochs, max(log_start_offset, segments[0].base_offset))
    log.damage.know(log.damaged)
    return log if log.start_offset <= log.end_offset else None


def recover(place: Place, last_run: LastRun) -> PartitionLog:
    """Opens a log that a crash left, and brings it to a durable and correct state.

    Raises `Quarantine` and `Stray`, and then leaves everything as it is. Raises `StorageFailure` and OSError.
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
    tail = RecoveryScan(place, epochs, last_run.same_boot)
    if _front_is_missing(segments, last_run):
        # Like a gap further on in the log: the name of the first file never reached the disk, and the
        # name of a later file did.
        tail.set_aside(segments)
        segments[:] = [Segment(place.files, place.folder, last_run.log_start_offset, place.key)]
    at = _segment_of(segments, point)
    if at is None:
        at, position, expected = 0, 0, segments[0].base_offset
    else:
        assert point is not None
        position, expected = point.position, point.offset
    contents.segments = tail.scan(segments, at, position, expected)
    # Renames, creations and removals may be in the page cache only. That is possible after another boot
    # too, because an earlier start of this boot may have died half-way.
    sync_found(place.files.files, place.folder)
    if tail.scanned:
        # As with the batches, the entries may have been read from the page cache only.
        with place.files.use(f"{place.folder}/{EPOCHS_FILE}") as file:
            flush_found(file, f"{place.folder}/{EPOCHS_FILE}")
    return _settle(place, contents, epochs, tail, last_run)


def _front_is_missing(segments: list[Segment], last_run: LastRun) -> bool:
    """Whether the log's first batches are missing, and no flush had made them durable.

    Retention cannot be the cause, because the start offset is durable before a file is removed. If the
    log's start moved over the gap, other replicas would believe that these offsets were deleted (R11).
    """
    first, point, start = segments[0], last_run.recovery_point, last_run.log_start_offset
    if first.base_offset <= start or (point and point.offset > start):
        return False
    if last_run.same_boot:
        raise Quarantine(f"{first.path} is the first segment, and the log begins at offset {start}")
    return True


def _settle(
    place: Place, contents: Contents, epochs: LeaderEpochs, tail: RecoveryScan, last_run: LastRun
) -> PartitionLog:
    """Makes all other files agree with the log end that was found, durably, before the first append."""
    files = place.files.files
    start = max(last_run.log_start_offset, contents.segments[0].base_offset)
    changed = emptied = False
    if contents.segments[-1].next_offset < start:
        # LEO < LSO: all records that are left lie below the start.
        for segment in contents.segments:
            segment.remove()
        contents.segments = [Segment(place.files, place.folder, start, place.key)]
        changed = emptied = True
    elif not last_run.same_boot or tail.cut_bytes:
        changed = contents.segments[-1].drop_stale_index()
    end = contents.segments[-1].next_offset
    if remove_guard_snapshots(place.files, place.folder, above=end) or changed:
        sync_found(files, place.folder)
    # The history of an emptied log would describe records that are removed.
    kept = LeaderEpochs() if emptied else epochs.recovered(end)
    if kept is not None or _has_more(place, epochs):
        save_epochs(place.files, place.folder, *place.key, kept or epochs)
    contents.suspect = contents.suspect or tail.suspect
    log = _log(place, contents, kept or epochs, start)
    log.damage.know([*log.damaged, *tail.damaged])
    log.cut_bytes = tail.cut_bytes
    return log


def _has_more(place: Place, epochs: LeaderEpochs) -> bool:
    """Whether entries that never fully reached the disk left bytes after the history.

    After a clean stop, these bytes would look like damage.
    """
    with place.files.use(f"{place.folder}/{EPOCHS_FILE}") as file:
        return file.size() > epochs.file_bytes


def _start_over(place: Place) -> PartitionLog | None:
    """Completes an interrupted `LogCutter.restart_at`; None: there is no mark.

    The caller saves the start, then removes the mark.
    """
    try:
        beginning = starting_over.marked(place.files.files, place.folder)
    except starting_over.MarkLost as error:
        raise Quarantine(str(error)) from None
    if beginning is None:
        return None
    # The mark may have been in the page cache only.
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
        place.key,
        place.config,
        epochs=epochs,
        segments=contents.segments,
        start_offset=start_offset,
    )
    log.recall(
        suspect=contents.suspect,
        page_cache=contents.page_cache,
        damaged=contents.damaged,
        assignment=place.assignment,
    )
    return log


def _epochs(place: Place, *, whole: bool) -> LeaderEpochs:
    try:
        return load_epochs(place.files.files, place.folder, *place.key, whole=whole)
    except EpochsLost as error:
        raise Quarantine(str(error)) from None


def _segment_of(segments: list[Segment], point: RecoveryPoint | None) -> int | None:
    """The index of the recovery point's segment, where the scan begins; None: at the log's first byte.

    Raises `Quarantine` if the files end below the recovery point, because that part was durable.
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
