"""Checks the files of one partition on a disk while no process writes to it.

Every batch's two CRCs, offsets without gaps, epochs and append times that never go
back, against what the identity file, ``leader-epochs``, the indexes and the checkpoints
say. A log that was being dropped for an empty one is not walked. Neighbours: `scan` (reads a
segment without believing it), `starting_over` (the mark of that), `verify` (the directory).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.model import id_text
from tidelog.records import BatchHeader
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file
from tidelog_broker.storage.folder.identity import read_identity
from tidelog_broker.storage.folder.leader_epochs import EpochsLost, LeaderEpochs, load_epochs
from tidelog_broker.storage.folder.starting_over import FILE_NAME as STARTING_OVER_FILE
from tidelog_broker.storage.folder.starting_over import MarkLost, marked
from tidelog_broker.storage.points import CleanEnd, PartitionKey, RecoveryPoint
from tidelog_broker.storage.segments.index import SparseIndex
from tidelog_broker.storage.segments.scan import Sound, Unsound, scan
from tidelog_broker.storage.segments.segment import segment_base, segment_name

PROBLEMS_PER_LOG_MAX = 100
"""After so many problems in one log the rest are only counted."""


class Finding(NamedTuple):
    """Something that is not as it should be, and where."""

    path: str
    what: str


@dataclass(slots=True)
class Findings:
    """Problems, and notes about faults that the next start repairs."""

    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def problem(self, path: str, what: str) -> None:
        self.problems.append(Finding(path, what))

    def note(self, path: str, what: str) -> None:
        self.notes.append(Finding(path, what))


class Expected(NamedTuple):
    """What the checkpoints say about one partition."""

    recovery_point: RecoveryPoint | None
    high_watermark: int
    log_start_offset: int
    clean_end: CleanEnd | None
    """None: the last stop was not a clean one."""


@dataclass(slots=True)
class LogReport:
    """What one partition's folder holds."""

    folder: str
    key: PartitionKey
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    end: tuple[int, int] = (0, 0)
    """Base of the last segment, bytes of sound batches in it."""

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "stream_id": id_text(self.key[0]),
            "partition": self.key[1],
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "log_start_offset": self.start_offset,
            "log_end_offset": self.end_offset,
        }


def verify_log(
    files: Files,
    folder: str,
    expected_of: Callable[[PartitionKey], Expected],
    findings: Findings,
    count: Callable[[int], None],
) -> LogReport | None:
    """Checks one folder; None if it does not say which partition it is. `count` gets bytes read."""
    bases = sorted(base for name in files.list(folder) if (base := segment_base(name)) is not None)
    identity = read_identity(files, folder)
    if identity is None:
        if bases:
            findings.problem(f"{folder}/identity", "the identity file is missing or damaged")
        else:
            findings.note(folder, "the folder has no identity and no records: its creation was interrupted")
        return None
    stream, number = folder.rsplit("/", 2)[-2:]
    if not stream.endswith(f"~{identity[0].hex()[:8]}") or number != str(identity[1]):
        findings.problem(
            f"{folder}/identity",
            f"the folder belongs to partition {identity[1]} of stream {id_text(identity[0])}",
        )
        return None
    for name in files.list(folder):
        if ".cut-" in name:
            findings.note(
                f"{folder}/{name}", "these bytes were cut off by an earlier recovery, which kept them"
            )
    emptied = _emptied(files, folder, identity, findings)
    if emptied is not None:
        count(sum(files.file_size(f"{folder}/{segment_name(base)}") for base in bases))
        return emptied
    check = _Check(files, folder, identity, expected_of(identity), findings)
    for base in bases:
        check.segment(base, last=base == bases[-1])
        count(files.file_size(f"{folder}/{segment_name(base)}"))
    check.end()
    return check.report


def _emptied(files: Files, folder: str, key: PartitionKey, findings: Findings) -> LogReport | None:
    """A log that a broker was dropping when it ended; None: there is no mark that says so.

    From the mark on the log is empty and begins there: what is left of the old one, and what
    the checkpoints say of it, counts for nothing.
    """
    path = f"{folder}/{STARTING_OVER_FILE}"
    try:
        beginning = marked(files, folder)
    except MarkLost:
        findings.problem(
            path, "the mark of a log that starts over is damaged; the next start sets the log aside"
        )
        return None
    if beginning is None:
        return None
    offset = beginning.offset
    findings.note(
        path,
        f"the log starts over, empty, at offset {offset}; the next start removes the rest of the old log",
    )
    return LogReport(folder, key, start_offset=offset, end_offset=offset)


class _Check:
    """The walk over one log."""

    def __init__(
        self, files: Files, folder: str, identity: tuple[bytes, int], expected: Expected, findings: Findings
    ) -> None:
        self._files = files
        self._folder = folder
        self._stream_id, self._partition = identity
        self._expected = expected
        self._findings = findings
        self._problems = 0
        self._last: BatchHeader | None = None
        self._next_offset: int | None = None
        """Where the next batch must begin; None: not known (the start, or behind damage)."""
        self._epochs = self._load_epochs()
        self.report = LogReport(folder, identity)

    def _load_epochs(self) -> LeaderEpochs | None:
        try:
            return load_epochs(self._files, self._folder, self._stream_id, self._partition)
        except EpochsLost as error:
            self._findings.problem(f"{self._folder}/leader-epochs", f"the history is lost: {error}")
            return None

    def _problem(self, path: str, what: str) -> None:
        self._problems += 1
        if self._problems <= PROBLEMS_PER_LOG_MAX:
            self._findings.problem(path, what)

    # --- segments

    def segment(self, base: int, *, last: bool) -> None:
        path = f"{self._folder}/{segment_name(base)}"
        report = self.report
        if report.segments == 0:
            self._first_segment(path, base)
        elif self._next_offset is not None and base != self._next_offset:
            self._problem(
                path,
                f"the segment begins at offset {base}, but the one before it ends at {self._next_offset}",
            )
        size = self._files.file_size(path)
        file = self._files.open(path)
        starts: dict[int, int] = {}
        sound_bytes = 0
        self._next_offset = base
        try:
            for found in scan(file, 0, size, self._stream_id, self._partition, base):
                if isinstance(found, Sound):
                    starts[found.position] = found.header.base_offset - base
                    sound_bytes = found.position + found.header.length
                    self._batch(path, found)
                else:
                    self._unsound(path, base, found, size, last)
        finally:
            file.close()
        report.segments += 1
        report.bytes += size
        report.end = (base, sound_bytes)
        self._indexes(base, starts, size)

    def _first_segment(self, path: str, base: int) -> None:
        self.report.start_offset = max(base, self._expected.log_start_offset)
        self.report.end_offset = base
        if base > self._expected.log_start_offset:
            self._problem(
                path,
                f"the log begins at offset {base}, although it may be read from "
                f"{self._expected.log_start_offset} on",
            )

    def _batch(self, path: str, found: Sound) -> None:
        header, before = found.header, self._last
        where = f"at byte {found.position} (offset {header.base_offset})"
        if header.record_count != header.last_offset_delta + 1 and not header.compacted:
            self._problem(
                path, f"{where}: {header.record_count} records take {header.last_offset_delta + 1} offsets"
            )
        if before is not None:
            if header.leader_epoch < before.leader_epoch:
                self._problem(
                    path, f"{where}: leader epoch {header.leader_epoch} follows {before.leader_epoch}"
                )
            if header.append_time_us < before.append_time_us:
                self._problem(
                    path,
                    f"{where}: the append time goes back to {header.append_time_us} µs from "
                    f"{before.append_time_us}",
                )
        if self._epochs is not None:
            known = self._epochs.epoch_at(header.base_offset)
            if known != header.leader_epoch:
                self._problem(
                    path,
                    f"{where}: the leader epoch is {header.leader_epoch}, but leader-epochs says {known}",
                )
        self._last = header
        self._next_offset = header.next_offset
        self.report.batches += 1
        self.report.records += header.record_count
        self.report.end_offset = header.next_offset

    def _unsound(self, path: str, base: int, found: Unsound, size: int, last: bool) -> None:
        point = self._expected.recovery_point
        durable = point is not None and (base, found.position) < (point.segment_base, point.position)
        what = f"at byte {found.position}: {found.reason}"
        if (
            last
            and found.next_position is None
            and not durable
            and self._expected.clean_end is None
            and found.cut_short
        ):
            self._findings.note(
                path,
                f"{what}; a crash cut the last {size - found.position} bytes short, and the recovery sets "
                f"them aside",
            )
            return
        behind = (
            "no valid batch follows"
            if found.next_position is None
            else f"the next valid batch is at byte {found.next_position}"
        )
        self._problem(path, f"{what}; {behind}")
        self._next_offset = None

    def _indexes(self, base: int, starts: dict[int, int], size: int) -> None:
        """Every entry must point at a batch; a short or missing index is only slow."""
        stem = f"{self._folder}/{segment_name(base).removesuffix('.log')}"
        paths = (f"{stem}.index", f"{stem}.timeindex")
        if not all(self._files.exists(path) for path in paths):
            return
        offsets, times = (read_file(self._files, path) for path in paths)
        index = SparseIndex.load(base, offsets, times, size)
        if index.stale:
            self._findings.note(paths[0], "the index holds invalid entries; it is rebuilt when it is used")
        position = index.position_after(-1)
        while position is not None:
            relative = starts.get(position)
            if relative is None or index.position_at_or_before(relative) != position:
                self._problem(
                    paths[0], f"the index points to byte {position}, where no batch with that offset begins"
                )
                return
            position = index.position_after(position)

    # --- the whole log

    def end(self) -> None:
        report, expected = self.report, self._expected
        if self._problems > PROBLEMS_PER_LOG_MAX:
            more = self._problems - PROBLEMS_PER_LOG_MAX
            self._findings.problem(self._folder, f"{more} more problems in this log")
        if report.segments == 0:
            report.start_offset = report.end_offset = expected.log_start_offset
        for what, offset in (
            ("the recovery point", expected.recovery_point.offset if expected.recovery_point else 0),
            ("the high watermark", expected.high_watermark),
        ):
            if offset > report.end_offset:
                self._findings.problem(
                    self._folder, f"the log ends at offset {report.end_offset}, below {what} ({offset})"
                )
        if expected.log_start_offset > report.end_offset:
            self._findings.note(
                self._folder,
                f"the log ends at offset {report.end_offset}, below its start {expected.log_start_offset}; "
                "the next start empties it",
            )
        self._check_clean_end()
        self._check_history()

    def _check_clean_end(self) -> None:
        end, report = self._expected.clean_end, self.report
        if end is None:
            return
        found = (report.end_offset, *report.end)
        if report.segments and found != (end.log_end_offset, end.segment_base, end.size):
            self._findings.problem(
                self._folder,
                f"the log ends at offset {report.end_offset}, byte {report.end[1]} of segment "
                f"{report.end[0]}; the clean stop left it at {end.log_end_offset}, byte {end.size} of "
                f"segment {end.segment_base}",
            )

    def _check_history(self) -> None:
        if self._epochs is None or self._expected.clean_end is None:
            return
        for start in self._epochs:
            if start.start_offset > self.report.end_offset:
                self._findings.problem(
                    f"{self._folder}/leader-epochs",
                    f"epoch {start.epoch} begins at offset {start.start_offset}, behind the end of the log "
                    f"({self.report.end_offset})",
                )
