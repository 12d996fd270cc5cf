"""What a node asks its driver to do. Persist before you speak, as types.

`Ready.messages` may be sent at once. `Ready.persist` must be on disk, all of it, before
`RaftNode.advance` is called with the ready; it returns the messages that may be sent then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog_broker.core.raft.messages import Message
from tidelog_broker.model import Entry, HardState, Snapshot


class Persist(NamedTuple):
    """What must be made durable, in this order (`storage.raft.log.RaftLog.save`)."""

    snapshot: Snapshot | None
    """It replaces the whole log; None: no snapshot must be written."""
    entries: tuple[Entry, ...]
    """The first index may lie inside the log: the first entry that differs is replaced, and all after it."""
    hard_state: HardState | None
    """None: unchanged. Written last, because its commit index refers to the entries."""


@dataclass(frozen=True, slots=True)
class Read:
    """A linearizable read that may be answered from the image once the entry at `index` is applied."""

    token: int
    index: int


class Ready(NamedTuple):
    """One batch of work for the driver."""

    number: int
    """From 1; for logs."""
    persist: Persist | None
    """None: nothing must be written; `advance` is called nevertheless."""
    messages: tuple[Message, ...]
    """May be sent at once."""
    committed: tuple[Entry, ...]
    """Entries to apply, in order; they are on this disk already."""
    reads: tuple[Read, ...]
    failed_reads: tuple[int, ...]
    """Tokens of reads that this node cannot answer, because it does not lead any more."""
