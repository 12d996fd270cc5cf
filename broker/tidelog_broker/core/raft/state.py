"""What a voter or learner knows in every role: its term, its vote, its log, and what it wants to send.

The roles (`following`, `campaigning`, `leading`) read and change it; none of them knows `node`, which
owns it. A role that must end says so with a value (`transitions`), and `node` performs that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog_broker.core.raft.log import Log, RaftStorage
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.core.raft.outbox import Outbox
from tidelog_broker.core.raft.ready import Read
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.model import Configuration, HardState, Voter


class RandomSource(Protocol):
    """The part of `random.Random` that a node needs."""

    def randrange(self, start: int, stop: int) -> int: ...


class RaftState:
    """Term, vote, log and outgoing messages of one node. Not safe for threads."""

    __slots__ = (
        "failed_reads",
        "leader",
        "leader_refused",
        "log",
        "me",
        "outbox",
        "reads",
        "rng",
        "saved_term",
        "term",
        "times",
        "vote",
    )

    def __init__(
        self,
        me: Voter,
        storage: RaftStorage,
        hard_state: HardState,
        configurations: Sequence[tuple[int, Configuration]],
        *,
        times: RaftTimes,
        rng: RandomSource,
    ) -> None:
        """`configurations`: that of the newest snapshot, if there is one, and those in the later entries."""
        self.me = me
        self.times = times
        self.rng = rng
        self.term = hard_state.term
        self.vote = hard_state.vote
        snapshot_index = 0 if storage.snapshot is None else storage.snapshot.index
        self.log = Log(storage, max(hard_state.commit, snapshot_index), configurations)
        self.leader: Voter | None = None
        """The leader of this term; None: not known."""
        self.leader_refused = False
        """The machine of the last known leader refused a connection since the last message from it."""
        self.saved_term = hard_state.term
        """The term that is on disk, with its vote."""
        self.outbox = Outbox()
        self.reads: list[Read] = []
        """Reads that may be answered; the next ready has them."""
        self.failed_reads: list[int] = []
        """Tokens of reads that failed because the leadership ended; the next ready has them."""

    def __repr__(self) -> str:
        leader = "?" if self.leader is None else self.leader.broker_id
        return f"<RaftState {self.me.broker_id} term={self.term} leader={leader} {self.log!r}>"

    @property
    def configuration(self) -> Configuration:
        """The voters and learners, by the newest configuration entry, committed or not."""
        return self.log.configuration

    @property
    def may_campaign(self) -> bool:
        """Whether this node is a voter with a complete log.

        A voter that an uncommitted entry removes still counts: its log may be the only one
        that has the entry (thesis 4.2.2).
        """
        votes = any(self.me in one.voters for one in self.log.configurations_from(self.log.commit))
        return votes and self.log.unsaved_snapshot is None

    def election_timeout(self) -> int:
        """Ticks without a message from a leader after which a voter campaigns; random."""
        if self.configuration.voters == (self.me,):
            return 0
        if self.leader_refused:
            return self.rng.randrange(0, self.times.refused + 1)
        return self.rng.randrange(self.times.election, 2 * self.times.election)

    def send(self, message: Message) -> None:
        """Sends `message` once everything that it promises is on disk."""
        self.outbox.send(message)

    def send_now(self, message: Message) -> None:
        """Sends `message` at once. A leader's messages rest on its election, which was on disk before."""
        self.outbox.send_now(message)

    def begin_term(self, term: int, vote: Voter | None) -> None:
        """Enters a later term."""
        self.term, self.vote = term, vote
        self.outbox.drop_acknowledgements()
