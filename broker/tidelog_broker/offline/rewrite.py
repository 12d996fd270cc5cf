"""Mends a directory after a failed flush: what may not be on disk is written into new files (DESIGN 4.3).

A kernel that failed an fsync may report the same pages as clean the next time, so another sync of the old
files proves nothing. Everything behind the recovery points is read, checked
batch by batch, copied to new files, flushed, and put in place of the old files. The
metadata log is opened as a start opens it: a directory that no start accepts does not count as mended.

Two things stay as the last run left them. The saved high watermark is never raised: a
written record may not be committed. And a replica may lack records that it acknowledged: the
next start knows which one, because it has the image. As after a loss of power, these are the
replicas of `page-cache` streams (R6), so the directory forgets the kernel's boot before
anything is cut. A replica of an `fsync` stream acknowledged only records that earlier flushes had
brought to the disk; records that this flush lost were never acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog_broker.storage.directory import superseding
from tidelog_broker.storage.directory.checkpoint import Checkpoints
from tidelog_broker.storage.directory.data_directory import DataDirectory, Unlock, lock_file
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import is_folder, write_all
from tidelog_broker.storage.folder.contents import Stray
from tidelog_broker.storage.folder.identity import read_held
from tidelog_broker.storage.folder.leader_epochs import save_epochs
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.recovery import LastRun, recover
from tidelog_broker.storage.log.recovery_scan import Place, Quarantine
from tidelog_broker.storage.log.tail_cache import TailCache
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.storage.raft.recovery import open_raft_log

COPY_BYTES = 4 << 20


def recover_data_directory(
    files: Files, path: str, *, lock: Callable[[str], Unlock] = lock_file
) -> Iterator[str]:
    """Mends a data directory and removes its FAILED mark; yields a sentence for each step.

    Raises `DirectoryDamaged` if the next start would refuse the metadata log, `DataDirectoryError`, and
    OSError; the mark then stays, and the command can be repeated.
    """
    directory = DataDirectory.open_to_recover(files, path, lock=lock)
    try:
        reason = directory.failure()
        yield (
            f"the directory is marked as failed: {reason}"
            if reason
            else "the directory is not marked as failed; it is recovered all the same"
        )
        # Before anything is cut: later reads cannot tell what the page cache lost.
        directory.forget_boot()
        yield (
            "the page cache of the last run is no longer trusted: replicas of page-cache streams "
            "leave the in-sync set at the next start and catch up"
        )
        yield _rewrite_metadata(directory)
        checkpoints = Checkpoints.load(files, f"{path}/checkpoints")
        opened = OpenFiles(files)
        for below in _below_streams(files, f"{path}/streams"):
            if is_folder(files, f"{path}/streams/{below}"):
                yield _recover_partition(opened, checkpoints, f"{path}/streams/{below}")
            else:
                yield f"{below}: this is a file, not the folder of a partition; it stays as it is"
        checkpoints.save()
        directory.clear_failed()
        yield "the directory is mended; the broker can start"
    finally:
        directory.close()


def _rewrite_metadata(directory: DataDirectory) -> str:
    """Raises `DirectoryDamaged` if the next start would refuse the log."""
    files, path, raft = directory.files, directory.path, directory.raft_folder
    if superseding.is_between(files, path):
        return "the metadata log is being set aside; the next start finishes that"
    if files.exists(raft):
        for name in files.list(raft):
            if name.endswith(".log") or name == "hard-state":
                _copy(files, f"{raft}/{name}", None)
        files.sync_dir(raft)
    if superseding.is_marked(files, path):
        # No start reads it again, so it may be damaged.
        return (
            "the metadata log was written into new files; it is being set aside, and the next start finishes "
            "that"
        )
    open_raft_log(files, raft, same_boot=directory.same_boot, reserve=directory.reserve).close()
    return "the metadata log was written into new files"


def _below_streams(files: Files, streams: str) -> Iterator[str]:
    """Everything in the place of partition folders, and files in the place of stream folders.

    Paths below `streams`.
    """
    if not files.exists(streams):
        return
    for stream in files.list(streams):
        if stream.startswith("."):
            continue
        if not is_folder(files, f"{streams}/{stream}"):
            yield stream
            continue
        for partition in files.list(f"{streams}/{stream}"):
            if not partition.startswith("."):
                yield f"{stream}/{partition}"


def _recover_partition(files: OpenFiles, checkpoints: Checkpoints, folder: str) -> str:
    shown = "/".join(folder.rsplit("/", 2)[1:])
    held = read_held(files.files, folder)
    if held is None:
        return f"{shown}: the identity file cannot be read; the folder stays as it is"
    identity = held.key
    point = checkpoints.recovery_point(identity)
    last_run = LastRun(point, checkpoints.log_start_offset(identity), same_boot=False)
    try:
        log = recover(Place(files, TailCache(0), folder, identity, LogConfig(), held.assignment), last_run)
    except (Quarantine, Stray) as reason:
        return f"{shown}: the log stays as it is: {reason}"
    rewritten = 0
    for segment in log.segments:
        if segment.size and (point is None or segment.base_offset >= point.segment_base):
            _copy(files.files, segment.path, segment.size)
            rewritten += segment.size
    files.files.sync_dir(folder)
    save_epochs(files, folder, *identity, log.epochs)
    checkpoints.put_recovery_point(identity, log.recovery_point, checkpoints.high_watermark(identity))
    checkpoints.put_log_start_offset(identity, log.start_offset)
    log.close()
    end = f"the log ends at offset {log.end_offset}"
    return f"{shown}: {rewritten} bytes were written into new files; {end}{_cut(log)}"


def _cut(log: PartitionLog) -> str:
    return f"; {log.cut_bytes} bytes behind its last whole batch are kept beside it" if log.cut_bytes else ""


def _copy(files: Files, path: str, size: int | None) -> None:
    """Puts a flushed copy of a file in its place; durable once the folder is synced."""
    temporary = f"{path}.tmp"
    if files.exists(temporary):
        files.remove(temporary)
    source, copy = files.open(path), files.open(temporary, create=True)
    try:
        end = source.size() if size is None else size
        for position in range(0, end, COPY_BYTES):
            write_all(copy, [source.pread(min(COPY_BYTES, end - position), position)], position)
        copy.datasync()
    finally:
        source.close()
        copy.close()
    files.rename(temporary, path)
