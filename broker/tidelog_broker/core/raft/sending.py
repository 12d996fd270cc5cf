"""What a leader sends to one peer next: entries, or the image when the entries are compacted away.

Neighbours: `leading` says when to send, `progress` what the peer has and how much may be on its way.
"""

from __future__ import annotations

from tidelog_broker.core.raft.log import Log
from tidelog_broker.core.raft.messages import AppendRequest, SnapshotRequest
from tidelog_broker.core.raft.progress import Progress
from tidelog_broker.model import Voter

APPEND_BYTES_MAX = 1 << 20
"""Entries of one message, about; at least one entry."""


def next_message(
    term: int, me: Voter, peer: Voter, progress: Progress, log: Log, *, empty: bool
) -> AppendRequest | SnapshotRequest | None:
    """The next message for `peer`, recorded in `progress` as sent; None: nothing to send now.

    `empty`: a message even without a new entry, to tell the peer the commit index, or to find
    out where the logs agree.
    """
    if progress.paused:
        return None
    previous = progress.next - 1
    previous_term = log.term(previous)
    entries = tuple(log.entries(progress.next, log.last_index + 1, APPEND_BYTES_MAX))
    if previous_term is None or (not entries and progress.next <= log.last_index):
        return _snapshot(term, me, peer, progress, log)
    if not entries and not empty:
        return None
    progress.sent(previous + len(entries), empty=not entries)
    return AppendRequest(
        term,
        me,
        peer,
        previous_index=previous,
        previous_term=previous_term,
        entries=entries,
        commit=log.commit,
    )


def _snapshot(term: int, me: Voter, peer: Voter, progress: Progress, log: Log) -> SnapshotRequest | None:
    snapshot = log.snapshot
    assert snapshot is not None, (
        f"{peer} needs entries that are compacted away, and there is no image: {log!r}"
    )
    if not progress.heard:
        # An image is large, and a peer that has not answered lately would probably not get it.
        return None
    progress.begin_snapshot(snapshot.index)
    return SnapshotRequest(term, me, peer, snapshot=snapshot)
