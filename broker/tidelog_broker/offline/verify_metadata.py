"""Checks the metadata log below ``raft/`` without changing it; `storage.raft.recovery` has the rules."""

from __future__ import annotations

from tidelog_broker.offline.verify_log import Findings
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file
from tidelog_broker.storage.raft.format import (
    cut_short,
    find_entries,
    unpack_entry,
    unpack_hard_state,
    unpack_snapshot,
)
from tidelog_broker.storage.raft.segment import INSTALL_NAME, SEGMENT_NAME, SNAPSHOT_NAME


def verify_metadata(files: Files, folder: str, findings: Findings) -> int:
    """The number of valid entries; problems go to `findings`."""
    if not files.exists(folder):
        findings.problem(folder, "the metadata log is missing")
        return 0
    names = files.list(folder)
    commit = _check_hard_state(files, folder, findings)
    if _being_replaced(files, folder, names, findings):
        return 0
    covered = _check_snapshots(files, folder, names, findings)
    bases = sorted(int(found[1]) for name in names if (found := SEGMENT_NAME.fullmatch(name)))
    if not bases:
        findings.problem(folder, "the metadata log has no segment")
        return 0
    if bases[0] > covered + 1:
        findings.problem(
            folder,
            f"the metadata log begins at entry {bases[0]}, and no snapshot covers the entries before it",
        )
    entries, following, term = 0, bases[0], 0
    for base in bases:
        path = f"{folder}/{base:020d}.log"
        if base != following:
            findings.problem(path, f"the segment begins at entry {base} instead of entry {following}")
        count, term = _check_segment(files, path, base, term, commit, base == bases[-1], findings)
        entries += count
        following = base + count
    if following - 1 < max(commit, covered):
        findings.problem(
            folder,
            f"the metadata log ends at entry {following - 1}, although {max(commit, covered)} was committed",
        )
    return entries


def _being_replaced(files: Files, folder: str, names: list[str], findings: Findings) -> bool:
    """Whether a leader's image was taking the place of the log, which then counts for nothing."""
    found = [name for name in names if INSTALL_NAME.fullmatch(name)]
    for name in found:
        path = f"{folder}/{name}"
        if unpack_snapshot(read_file(files, path)) is None:
            findings.problem(path, "the snapshot that replaces the log fails its checksum")
        else:
            findings.note(path, "a snapshot is replacing the log; the next start finishes that")
    return bool(found)


def _check_hard_state(files: Files, folder: str, findings: Findings) -> int:
    """The commit index; 0 if it is not to be had."""
    path = f"{folder}/hard-state"
    state = unpack_hard_state(read_file(files, path)) if files.exists(path) else None
    if state is None:
        findings.problem(
            path, "the hard state is missing or fails its checksum, and with it this broker's vote"
        )
        return 0
    return state.commit


def _check_snapshots(files: Files, folder: str, names: list[str], findings: Findings) -> int:
    """The index of the newest whole snapshot; 0: there is none."""
    newest = 0
    for name in sorted(names):
        found = SNAPSHOT_NAME.fullmatch(name)
        if found is None:
            continue
        snapshot = unpack_snapshot(read_file(files, f"{folder}/{name}"))
        if snapshot is None or (snapshot.index, snapshot.term) != (int(found[1]), int(found[2])):
            findings.problem(f"{folder}/{name}", "the snapshot fails its checksum")
        else:
            newest = snapshot.index
    return newest


def _check_segment(
    files: Files, path: str, base: int, term: int, commit: int, last: bool, findings: Findings
) -> tuple[int, int]:
    """Sound entries in one file, and the last term."""
    data = read_file(files, path)
    position, index = 0, base
    while position < len(data):
        frame = unpack_entry(data, position)
        if frame is None or frame.entry.index != index or frame.entry.term < term:
            known = index <= commit or any(later.durable >= index for later in find_entries(data, position))
            if last and not known and cut_short(data, position):
                findings.note(path, f"entry {index} is torn at byte {position}; the next start cuts it off")
            else:
                findings.problem(path, f"entry {index} at byte {position} is invalid")
            break
        term, position, index = frame.entry.term, frame.end, index + 1
    return index - base, term
