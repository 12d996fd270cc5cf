"""Checking a data directory that no broker uses: everything is read, nothing is changed.

What a start would quietly mend (indexes, a torn tail past the recovery point) is a
*note*; what it would refuse, quarantine or serve with a hole in it is a *problem*.
Neighbours: `verify_log` (one partition), `verify_metadata` (``raft/``). `main` is what
``tidelog verify`` runs in a process of its own, because the client knows no broker.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tidelog_broker.errors import MEND, BrokerError, DataDirectoryError, DirectoryDamaged
from tidelog_broker.offline.verify_log import Expected, Findings, LogReport, verify_log
from tidelog_broker.offline.verify_metadata import verify_metadata
from tidelog_broker.storage.directory import superseding
from tidelog_broker.storage.directory.checkpoint import Checkpoints
from tidelog_broker.storage.directory.data_directory import DataDirectory, Unlock
from tidelog_broker.storage.files.os_files import OsFile, OsFiles
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import is_folder
from tidelog_broker.storage.points import CleanEnd, PartitionKey
from tidelog_broker.storage.segments.segment import segment_base

EXIT_CLEAN = 0
EXIT_PROBLEMS = 1
EXIT_UNREADABLE = 3
"""A broker uses it, or it cannot be read."""
EXIT_NOT_FOUND = 4
"""The folder is not a data directory."""
EXIT_DAMAGED = 5
"""Nothing in it can be believed, so there is no report: its identity or its metadata log is damaged."""

PROGRESS_SECONDS = 0.2


class NoDataDirectory(DataDirectoryError):
    """The folder is not a data directory; a check must not create one."""


class ReadOnlyFiles(OsFiles):
    """The operating system's files, opened for reading only.

    Removing and syncing are passed over, so that code which reads a mark and then takes
    it away can be used to look at it.
    """

    def open(self, path: str, *, create: bool = False) -> OsFile:
        assert not create, path
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def make_dir(self, path: str) -> None:
        raise AssertionError(f"verifying must not make {path}")

    def rename(self, source: str, target: str) -> None:
        raise AssertionError(f"verifying must not rename {source}")

    def remove(self, path: str) -> None:
        pass

    def remove_tree(self, path: str) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


class Report:
    """What was found in one data directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.cluster_id = ""
        self.broker_id = 0
        self.stopped_cleanly = False
        self.metadata_entries = 0
        self.logs: list[LogReport] = []
        self.findings = Findings()

    @property
    def clean(self) -> bool:
        return not self.findings.problems

    def as_json(self) -> dict[str, Any]:
        return {
            "data_directory": self.path,
            "clean": self.clean,
            "cluster_id": self.cluster_id,
            "broker_id": self.broker_id,
            "stopped_cleanly": self.stopped_cleanly,
            "metadata_entries": self.metadata_entries,
            "partitions": len(self.logs),
            "segments": sum(log.segments for log in self.logs),
            "batches": sum(log.batches for log in self.logs),
            "records": sum(log.records for log in self.logs),
            "bytes": sum(log.bytes for log in self.logs),
            "logs": [log.as_json() for log in self.logs],
            "problems": [finding._asdict() for finding in self.findings.problems],
            "notes": [finding._asdict() for finding in self.findings.notes],
        }


def verify_data_directory(
    path: str, files: Files | None = None, *, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Checks everything below `path`; `progress` gets bytes read and bytes in all.

    Raises `NoDataDirectory` if it is none, `DataDirectoryError` if a broker uses it, and OSError.
    """
    files = files or ReadOnlyFiles()
    if not files.exists(f"{path}/meta.json"):
        raise NoDataDirectory(_what_it_is(files, path))
    directory = DataDirectory.open_to_recover(files, path, lock=_shared_lock)
    try:
        return _verify(files, directory, progress or (lambda done, total: None))
    finally:
        directory.close()


def _what_it_is(files: Files, path: str) -> str:
    """Why a folder is not a data directory. Users often give the folder of `tidelog dev` around it."""
    if files.exists(f"{path}/broker/meta.json"):
        return f"{path} is not a data directory, but {path}/broker is; give that path"
    if files.exists(f"{path}/raft") or files.exists(f"{path}/streams"):
        return f"{path} is no longer a data directory: its meta.json is missing; {MEND}"
    return f"{path} is not a data directory: it has no meta.json"


def _verify(files: Files, directory: DataDirectory, progress: Callable[[int, int], None]) -> Report:
    report = Report(directory.path)
    report.cluster_id, report.broker_id = directory.meta.cluster_id, directory.broker_id
    findings = report.findings
    failure = directory.failure()
    if failure is not None:
        findings.problem(
            f"{directory.path}/FAILED", f"a flush failed ({failure}); what is on disk is unknown"
        )
    superseding.require_log(files, directory.path)
    report.metadata_entries = verify_metadata(files, directory.raft_folder, findings)
    checkpoints, ends = _checkpoints(files, f"{directory.path}/checkpoints", findings)
    report.stopped_cleanly = ends is not None
    folders = _partition_folders(files, f"{directory.path}/streams", findings)
    total = sum(_log_bytes(files, folder) for folder in folders)
    done = 0

    def count(read: int) -> None:
        nonlocal done
        done += read
        progress(done, total)

    seen: set[PartitionKey] = set()
    for folder in folders:
        log = verify_log(files, folder, lambda key: _expected(checkpoints, ends, key), findings, count)
        if log is not None:
            seen.add(log.key)
            report.logs.append(log)
    for key in sorted(set(checkpoints._tables["recovery-points"]) - seen):
        findings.problem(
            f"{directory.path}/checkpoints",
            f"the folder of partition {key[1]} of stream {key[0].hex()} is missing",
        )
    return report


def _checkpoints(
    files: Files, folder: str, findings: Findings
) -> tuple[Checkpoints, dict[PartitionKey, CleanEnd] | None]:
    checkpoints = Checkpoints.load(files, folder)
    for path in checkpoints.unreadable:
        findings.problem(path, "the checkpoint fails its checksum")
    for path in checkpoints.mended:
        findings.note(path, "the checkpoint is missing or damaged; the next start restores it from its copy")
    marked = files.exists(f"{folder}/{Checkpoints.CLEAN}")
    ends = checkpoints.take_clean_mark()
    if marked and ends is None:
        findings.problem(f"{folder}/{Checkpoints.CLEAN}", "the mark of the clean stop fails its checksum")
    return checkpoints, ends


def _expected(
    checkpoints: Checkpoints, ends: dict[PartitionKey, CleanEnd] | None, key: PartitionKey
) -> Expected:
    return Expected(
        checkpoints.recovery_point(key),
        checkpoints.high_watermark(key),
        checkpoints.log_start_offset(key),
        None if ends is None else ends.get(key),
    )


def _partition_folders(files: Files, streams: str, findings: Findings) -> list[str]:
    """Folders that may hold a log; what else lies there goes to `findings`."""
    found: list[str] = []
    if not files.exists(streams):
        return found
    for stream in files.list(streams):
        path = f"{streams}/{stream}"
        if stream.startswith(".deleted-"):
            findings.note(path, "a deleted stream; the next start of the broker removes it")
            continue
        if not is_folder(files, path):
            findings.note(path, "a file, not the folder of a stream; nothing uses it")
            continue
        for name in files.list(path):
            if not is_folder(files, f"{path}/{name}"):
                _note_file(f"{path}/{name}", findings)
            elif name.startswith(".quarantine-"):
                findings.problem(
                    f"{path}/{name}", "a log that was quarantined: its end or history is unknown"
                )
            elif not name.isdigit():
                findings.problem(f"{path}/{name}", "this is not the folder of a partition; nothing uses it")
            else:
                found.append(f"{path}/{name}")
    return found


def _note_file(path: str, findings: Findings) -> None:
    """A file in the folder of a stream: in the way of a partition if it has the name of one."""
    if path.rpartition("/")[2].isdigit():
        findings.problem(path, "a file stands where the folder of a partition belongs")
    else:
        findings.note(path, "a file, not the folder of a partition; nothing uses it")


def _log_bytes(files: Files, folder: str) -> int:
    return sum(
        files.file_size(f"{folder}/{name}") for name in files.list(folder) if segment_base(name) is not None
    )


def _shared_lock(path: str) -> Unlock:
    """Keeps brokers out and lets other readers in; raises `DataDirectoryError` if a broker is there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return lambda: None  # no broker ever started here
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise DataDirectoryError(
            f"{os.path.dirname(path)} is in use by a broker (process {owner}); stop it first"
        ) from None
    return lambda: os.close(fd)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report as JSON and, with ``--progress``, a line ``done total`` now and then to stderr."""
    parser = argparse.ArgumentParser(prog="tidelog verify", description="Check a data directory offline.")
    parser.add_argument("data_dir", help="the data directory of a broker")
    parser.add_argument(
        "--progress", action="store_true", help="print the bytes read so far and in all to standard error"
    )
    options = parser.parse_args(arguments)
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if options.progress and (now - last >= PROGRESS_SECONDS or done == total):
            last = now
            sys.stderr.write(f"progress {done} {total}\n")
            sys.stderr.flush()

    try:
        report = verify_data_directory(os.path.abspath(options.data_dir), progress=progress)
    except NoDataDirectory as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_NOT_FOUND
    except DirectoryDamaged as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_DAMAGED
    except (BrokerError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_UNREADABLE
    json.dump(report.as_json(), sys.stdout)
    sys.stdout.write("\n")
    return EXIT_CLEAN if report.clean else EXIT_PROBLEMS


if __name__ == "__main__":
    sys.exit(main())
