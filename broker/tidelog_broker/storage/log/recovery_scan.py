"""The scan of a log's tail after a crash: reads it from the disk itself (2a) and finds the log's end (2b).

Cut bytes are kept beside the log. Neighbours: `recovery` uses the result, `segments.scan` tells sound
batches from unsound batches.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.protocol import File
from tidelog_broker.storage.files.whole_files import flush_found, sync_found, write_all
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs
from tidelog_broker.storage.folder.suspicion import write_suspicion
from tidelog_broker.storage.log.tail_cache import TailCache
from tidelog_broker.storage.log.write_batch import FULL_DISK_ERRNOS, LogConfig
from tidelog_broker.storage.points import PartitionKey
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
"""The bytes that are copied at a time into a `.cut-…` file."""

WHOLE_BATCHES = "there are whole batches in what was cut"


class Quarantine(Exception):
    """The end or the history of a log is unknown, so its folder is set aside as it is (2c)."""


class Place(NamedTuple):
    """The log that is recovered, and its folder."""

    files: OpenFiles
    cache: TailCache
    folder: str
    key: PartitionKey
    config: LogConfig
    assignment: int = 0


@dataclass(slots=True)
class RecoveryScan:
    """Scans the part of a log past the recovery point, and cuts the log at its end (2a, 2b)."""

    place: Place
    epochs: LeaderEpochs
    same_boot: bool
    damaged: list[DamagedRange] = field(default_factory=list)
    suspect: bool = False
    cut_bytes: int = 0
    scanned: bool = False
    """There were bytes past the recovery point, or a file that had to be flushed."""

    def scan(self, segments: list[Segment], at: int, position: int, expected: int) -> list[Segment]:
        """Scans from `position` in segment number `at` on; returns the segments that are left of the log."""
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
                # A cut may have ended the file here, and may be in the page cache only (R1).
                self.scanned = True
                with segment.opened() as file:
                    flush_found(file, segment.path)
            expected, position = segment.next_offset, 0
        return segments

    def _check_end(self, segment: Segment) -> None:
        """Looks for damage at the end of the segment before the scanned part; all of it was durable."""
        end = segment.base_offset
        for _, header in segment.walk_past_damage(max(segment.index.last_position, 0)):
            end = header.next_offset
        if end < segment.next_offset:
            found = scan_segment(segment)
            self.damaged += found.damaged
            segment.adopt_index(found.index, found.bytes)

    def _scan_file(self, segment: Segment, file_bytes: int, is_last: bool) -> bool:
        """Scans one file from `segment.size` on; returns whether the log ends before the file's last byte."""
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
                    # The batch was never acknowledged: a flush makes the history durable before batches.
                    self._cut(segment, file, found.position, file_bytes, None)
                    return True
                if damaged_at is not None:
                    self.damaged.append(DamagedRange(damaged_at, header.base_offset))
                    segment.skip_to(found.position, header.base_offset)
                    damaged_at = None
                segment.extend([header])
        return False

    def _is_end(self, segment: Segment, found: Unsound, is_last: bool) -> bool:
        """Whether the log ends at unsound bytes; otherwise the bytes are damage. Raises `Quarantine`."""
        if not self.same_boot or (found.cut_short and is_last):
            return True
        if found.next_position is None:
            raise Quarantine(f"{segment.path} at {found.position}: {found.reason}; nothing sound follows")
        return False

    def _unknown_epoch(self, segment: Segment, found: Sound) -> None:
        if self.same_boot:
            header = found.header
            raise Quarantine(
                f"{segment.path} has a batch at offset {header.base_offset} of leader epoch "
                f"{header.leader_epoch}, which is not in leader-epochs"
            )

    def _cut(self, segment: Segment, file: File, position: int, file_bytes: int, doubt: str | None) -> None:
        """Cuts the log at `position`, and keeps the cut bytes beside it (2b).

        `doubt`: why the cut bytes may have been acknowledged; None: they were not acknowledged.
        """
        files = self.place.files.files
        rest = file_bytes - position
        # If the file size reached the disk and its pages did not, the bytes are zeros: nothing to keep.
        if doubt or rest > COPY_BYTES or file.pread(rest, position).strip(b"\0"):
            try:
                _keep(self.place, segment, position, file_bytes)
            except OSError as error:
                # A full disk must not stop a broker's start because of a batch that was never whole.
                if doubt or error.errno not in FULL_DISK_ERRNOS:
                    raise
            self.cut_bytes += file_bytes - position
        if doubt:
            self._suspect(segment, position, doubt)
        file.truncate(position)
        flush_found(file, segment.path)
        sync_found(files, self.place.folder)

    def set_aside(self, segments: list[Segment]) -> None:
        """Renames the segments after the log's end to `.cut-…`, and removes those that are empty."""
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
    """Why the cut bytes may have been acknowledged; None: a torn write leaves bytes like these (2b)."""
    if found.next_position is not None:
        return WHOLE_BATCHES
    if not may_be_torn(file, found, file_bytes, *segment.key):
        return f"{found.reason}, and no part is missing, unlike after a write that was cut short"
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
