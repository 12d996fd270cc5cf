"""Opens the metadata log that the last run left, and repairs a torn end.

It applies the rule of DESIGN 4, 2b, to the metadata log. An entry is *known to have been
durable* if the saved commit covers it, if a later entry says so, or if a later segment
exists. If such an entry is invalid or missing, the log is damaged and the broker does not
start: metadata is never guessed. Behind the last such entry, a crash may have torn the
log. The log then ends at the first invalid entry, if that entry lacks a part as a torn write does
(`torn`). If it lacks no part, it rotted. This broker may have acknowledged it to the leader: if it
were cut off, the quorum could lose it. If the kernel did not restart since the last run, the page
cache survived, so an entry is torn only if the file ends inside it.

Bytes that are cut off are kept in a ``.cut-…`` file, which is never overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from tidelog_broker.errors import MEND, DirectoryDamaged
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Snapshot, Voter
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.files.whole_files import flush_found, read_file, sync_found, write_all
from tidelog_broker.storage.raft.format import (
    UNKNOWN_DIRECTORY,
    Frame,
    cut_short,
    find_entries,
    may_be_torn,
    unpack_entry,
    unpack_hard_state,
    unpack_snapshot,
)
from tidelog_broker.storage.raft.install import finish_install
from tidelog_broker.storage.raft.log import SEGMENT_BYTES, RaftLog
from tidelog_broker.storage.raft.segment import (
    INSTALL_NAME,
    SEGMENT_NAME,
    SNAPSHOT_NAME,
    RaftSegment,
    segment_path,
    snapshot_path,
)

log = structlog.get_logger(__name__)


class _Snapshots(NamedTuple):
    newest: Snapshot | None
    whole: list[tuple[int, int]]
    """Index and term, oldest first."""


def open_raft_log(
    files: Files, folder: str, *, same_boot: bool, reserve: Reserve, segment_bytes: int = SEGMENT_BYTES
) -> RaftLog:
    """Opens the log below `folder` and repairs it as far as the rule allows.

    All its content is on disk when this returns. Raises `DirectoryDamaged` if the log
    is damaged or was never made.
    """
    hard_state = _hard_state(files, folder)
    # The last run may have left unsynced content and names that are only in the page cache.
    sync_found(files, folder)
    _finish_installs(files, folder)
    names = files.list(folder)
    snapshots = _load_snapshots(files, folder, names)
    bases = sorted(int(found[1]) for name in names if (found := SEGMENT_NAME.fullmatch(name)))
    if not bases:
        raise _damaged(f"{folder} holds no segment of the metadata log")
    segments: list[RaftSegment] = []
    changes: list[Entry] = []
    term = 0
    for base in bases:
        expected = segments[-1].next_index if segments else base
        if base != expected:
            raise _damaged(f"{segment_path(folder, base)} begins where entry {expected} should stand")
        last = base == bases[-1]
        segment, term = _recover_segment(
            files, folder, base, term, hard_state.commit, same_boot, last, changes
        )
        segments.append(segment)
    _check_whole(folder, hard_state, segments, snapshots)
    configurations = _configurations(snapshots.newest, changes)
    for name in names:
        if name.endswith(".tmp"):
            files.remove(f"{folder}/{name}")
    return RaftLog(
        files,
        folder,
        hard_state=_with_directory(hard_state, configurations),
        segments=segments,
        snapshots=snapshots.whole,
        snapshot=snapshots.newest,
        configurations=configurations,
        reserve=reserve,
        segment_bytes=segment_bytes,
    )


def _hard_state(files: Files, folder: str) -> HardState:
    path = f"{folder}/hard-state"
    if not files.exists(path):
        raise _damaged(f"{path} is missing, and with it this broker's vote")
    state = unpack_hard_state(read_file(files, path))
    if state is None:
        raise _damaged(f"{path} fails its checksum, and with it this broker's vote is lost")
    return state


def _finish_installs(files: Files, folder: str) -> None:
    """Completes the installation of a leader's image that the end of the last run interrupted (`install`)."""
    for name in files.list(folder):
        found = INSTALL_NAME.fullmatch(name)
        if found is None:
            continue
        index, term = int(found[1]), int(found[2])
        snapshot = unpack_snapshot(read_file(files, f"{folder}/{name}"))
        if snapshot is None or (snapshot.index, snapshot.term) != (index, term):
            raise _damaged(f"{folder}/{name}, which was taking the place of the log, fails its checksum")
        finish_install(files, folder, index, term)


def _configurations(snapshot: Snapshot | None, changes: Sequence[Entry]) -> list[tuple[int, Configuration]]:
    """The voter configurations of the newest snapshot and the entries behind it, each with its index."""
    begun = 0 if snapshot is None else snapshot.index
    found = [] if snapshot is None else [(snapshot.index, snapshot.configuration)]
    later = [entry for entry in changes if entry.index > begun]
    return [*found, *((entry.index, Configuration.decode(entry.payload)) for entry in later)]


def _with_directory(state: HardState, configurations: Sequence[tuple[int, Configuration]]) -> HardState:
    """Adds the directory id to a vote of the first version, which saved only the voted broker.

    The id comes from the newest list of voters. If the broker is not in that list, the vote stays without
    a directory id, and no other candidate gets a vote in that term.
    """
    if state.vote is None or state.vote.directory_id != UNKNOWN_DIRECTORY or not configurations:
        return state
    _, newest = configurations[-1]
    known: dict[int, Voter] = {voter.broker_id: voter for voter in newest.voters}
    return state._replace(vote=known.get(state.vote.broker_id, state.vote))


def _load_snapshots(files: Files, folder: str, names: list[str]) -> _Snapshots:
    """Loads the whole snapshots; a damaged snapshot is logged as an error and left in place."""
    newest: Snapshot | None = None
    whole: list[tuple[int, int]] = []
    places = sorted(
        (int(found[1]), int(found[2])) for name in names if (found := SNAPSHOT_NAME.fullmatch(name))
    )
    for index, term in places:
        path = snapshot_path(folder, index, term)
        snapshot = unpack_snapshot(read_file(files, path))
        if snapshot is None or (snapshot.index, snapshot.term) != (index, term):
            log.error("a metadata snapshot is damaged; an older snapshot and the log are used", path=path)
            continue
        newest = snapshot
        whole.append((index, term))
    return _Snapshots(newest, whole)


def _recover_segment(
    files: Files,
    folder: str,
    base: int,
    term: int,
    commit: int,
    same_boot: bool,
    last: bool,
    changes: list[Entry],
) -> tuple[RaftSegment, int]:
    """Loads a segment's valid entries and cuts off a torn end; returns the segment and the last term.

    The last segment is flushed first. Changes of the voters are added to `changes`.
    """
    segment = RaftSegment(folder, base)
    file = files.open(segment.path)
    try:
        if last:
            # The next read must return the content of the disk (2a), not of the page cache.
            flush_found(file, segment.path)
            file.drop_cache(0, file.size())
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    while segment.size < len(data):
        frame = unpack_entry(data, segment.size)
        if frame is None or frame.entry.index != segment.next_index or frame.entry.term < term:
            _check_torn(segment, data, commit, same_boot, last)
            _cut(files, segment, data[segment.size :])
            break
        term = frame.entry.term
        segment.add(frame.entry, frame.position, frame.end)
        if frame.entry.type is EntryType.CONFIGURATION:
            changes.append(frame.entry)
    return segment, term


def _check_torn(segment: RaftSegment, data: bytes, commit: int, same_boot: bool, last: bool) -> None:
    """Raises `DirectoryDamaged` unless the invalid entry behind the valid entries may be a torn write."""
    index, position = segment.next_index, segment.size
    where = f"entry {index} of the metadata log ({segment.path}, byte {position})"
    if not last:
        raise _damaged(f"{where} is invalid, though a later segment follows")
    if index <= commit:
        raise _damaged(f"{where} is invalid, though everything up to entry {commit} was committed")
    witness: Frame | None = next(
        (frame for frame in find_entries(data, position) if frame.durable >= index), None
    )
    if witness is not None:
        raise _damaged(
            f"{where} is invalid, though it was on disk when entry {witness.entry.index} was written"
        )
    if same_boot and not cut_short(data, position):
        raise _damaged(f"{where} is invalid, though the machine has not been restarted since it was written")
    if not may_be_torn(data, position):
        raise _damaged(f"{where} is invalid, though no part of it is missing as after a torn write")


def _cut(files: Files, segment: RaftSegment, tail: bytes) -> None:
    path, number = f"{segment.path}.cut-{segment.size}", 0
    while files.exists(path):
        number += 1
        path = f"{segment.path}.cut-{segment.size}.{number}"
    kept = files.open(path, create=True)
    try:
        write_all(kept, [tail], 0)
        kept.datasync()
    finally:
        kept.close()
    files.sync_dir(path.rsplit("/", 1)[0])
    file = files.open(segment.path)
    try:
        file.truncate(segment.size)
        flush_found(file, segment.path)
    finally:
        file.close()
    log.warning("the metadata log had a torn end", path=segment.path, last=segment.next_index - 1, kept=path)


def _check_whole(
    folder: str, hard_state: HardState, segments: list[RaftSegment], snapshots: _Snapshots
) -> None:
    """Checks that snapshot and entries have no gap between them and reach the known commit index."""
    first, last = segments[0].base, segments[-1].next_index - 1
    covered = snapshots.newest.index if snapshots.newest is not None else 0
    if first > covered + 1:
        raise _damaged(
            f"the metadata log in {folder} begins at entry {first}, and no snapshot covers those before"
        )
    if last < max(hard_state.commit, covered):
        raise _damaged(
            f"the metadata log in {folder} ends at entry {last}, "
            f"though entry {max(hard_state.commit, covered)} was committed"
        )


def _damaged(what: str) -> DirectoryDamaged:
    return DirectoryDamaged(f"{what}; {MEND}")
