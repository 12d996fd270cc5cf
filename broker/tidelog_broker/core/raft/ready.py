"""What a node wants done: persist before you speak, as types.

`Ready.messages` may go at once. `Ready.persist` must be on disk, all of it, before
`RaftNode.advance` is called with the ready, which answers with what may be said then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog_broker.core.raft.messages import Message
from tidelog_broker.model import Entry, HardState, Snapshot


class Persist(NamedTuple):
    """To be made durable in this order (`storage.raft_log.RaftLog.save`)."""

    snapshot: Snapshot | None
    """It takes the place of the whole log; None: there is none."""
    entries: tuple[Entry, ...]
    """The first one's index may lie inside the log: what differs, and all behind it, is replaced."""
    hard_state: HardState | None
    """None: as it was. Last, because its commit speaks of the entries."""


@dataclass(frozen=True, slots=True)
class Read:
    """A question that may be answered from the image once the entry at `index` was applied."""

    token: int
    index: int


class Ready(NamedTuple):
    """See the module."""

    number: int
    """From 1; for logs."""
    persist: Persist | None
    """None: nothing; `advance` is called all the same."""
    messages: tuple[Message, ...]
    """May go at once."""
    committed: tuple[Entry, ...]
    """To be applied, in order; on this disk already."""
    reads: tuple[Read, ...]
    failed_reads: tuple[int, ...]
    """Tokens of questions that this node can no longer answer: it does not lead any more."""
