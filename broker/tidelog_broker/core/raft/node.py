"""One voter or learner of the metadata log: Raft without I/O.

`tick`, `step`, `propose`, … change what the node believes; `ready` says what is to be
written, sent and applied, `advance` that the writing is done. One ready is outstanding at
a time; messages may be stepped meanwhile. So a leader whose disk hangs falls silent, and
another one is elected: it could not apply what the others commit.

What all roles share stands here: the term, the vote, the log, what is to be done. Whose
word counts: `stepping`. What a role does stands with it: `following`, `campaigning`,
`leading`.

Rules that go beyond the paper: pre-vote (thesis 9.6); check-quorum, and with it the rule
that a voter who hears a leader refuses to elect another, unless the leader's machine
refused its connection (DESIGN 6); ReadIndex (6.4); one voter at a time, and only after an
entry of the current term is committed (4.1, and Ongaro's correction of 2015); transfer of
leadership (3.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from tidelog_broker.core.raft.campaigning import Campaign
from tidelog_broker.core.raft.errors import NotRaftLeader
from tidelog_broker.core.raft.following import RaftFollower
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.log import Log, RaftStorage
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.core.raft.outbox import Outbox
from tidelog_broker.core.raft.ready import Persist, Read, Ready
from tidelog_broker.core.raft.stepping import step
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.model import Configuration, HardState, Voter

COMMITTED_BYTES_MAX = 8 << 20
"""Committed entries handed out in one ready, about; at least one."""


class Chance(Protocol):
    """The part of `random.Random` that a node needs."""

    def randrange(self, start: int, stop: int) -> int: ...


class RaftNode:
    """See the module. Not safe for threads."""

    def __init__(
        self,
        me: Voter,
        storage: RaftStorage,
        hard_state: HardState,
        configurations: Sequence[tuple[int, Configuration]],
        *,
        times: RaftTimes,
        rng: Chance,
    ) -> None:
        """`configurations`: that of the newest snapshot, if any, and those in the entries behind it."""
        self.me = me
        self.times = times
        self.rng = rng
        self.term = hard_state.term
        self.vote = hard_state.vote
        begun = 0 if storage.snapshot is None else storage.snapshot.index
        self.log = Log(storage, max(hard_state.commit, begun), configurations)
        self.leader: Voter | None = None
        """Of this term, as far as it is known."""
        self.leader_refused = False
        """The machine of the last known leader refused a connection since it was last heard."""
        self.applied = begun
        """Everything up to here was handed out to be applied, or is in the snapshot."""
        self.saved_term = hard_state.term
        """The term that is on disk, with its vote."""
        self.role: RaftFollower | Campaign | Leader = RaftFollower(self)
        self._handed = (hard_state.term, hard_state.vote)
        """What the newest ready has, or an earlier one had, made durable of term and vote."""
        self._outbox = Outbox()
        self._reads: list[Read] = []
        self._failed_reads: list[int] = []
        self._numbers = 0
        self._outstanding: Ready | None = None

    def __repr__(self) -> str:
        leader = "?" if self.leader is None else self.leader.broker_id
        state = f"{self.role_name} term={self.term} leader={leader}"
        return f"<RaftNode {self.me.broker_id} {state} {self.log!r}>"

    @property
    def role_name(self) -> str:
        """For status and logs: leader, candidate, follower or learner."""
        match self.role:
            case RaftFollower():
                return "follower" if self.me in self.configuration.voters else "learner"
            case Campaign():
                return "candidate"
            case Leader():
                return "leader"
            case _:
                assert_never(self.role)

    @property
    def leads(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def configuration(self) -> Configuration:
        """Who votes, by the newest entry that says so, committed or not."""
        return self.log.configuration

    def configuration_at(self, index: int) -> Configuration:
        """Who votes as of `index`: what a snapshot as of `index` says."""
        return self.log.configuration_at(index)

    @property
    def may_campaign(self) -> bool:
        """A voter whose log is whole.

        One that is removed by an entry that is not committed still counts: its log may be the
        only one that has the entry (thesis 4.2.2).
        """
        votes = any(self.me in one.voters for one in self.log.configurations_from(self.log.commit))
        return votes and self.log.unsaved_snapshot is None

    # --- what happens

    def tick(self) -> None:
        """Time passes, by one tick."""
        self.role.tick()

    def step(self, message: Message) -> None:
        """A message arrives."""
        step(self, message)

    def refused(self, peer: Voter) -> None:
        """The machine of `peer` refused a connection: its process is gone. May be told again and again."""
        if peer == self.leader and peer != self.me and not self.leader_refused:
            self.leader_refused = True
            self.role.leader_refused()

    def disconnected(self, peer: Voter) -> None:
        """The stream to `peer` broke: what was on its way may be lost."""
        if isinstance(self.role, Leader):
            self.role.disconnected(peer)

    def campaign(self) -> None:
        """Asks for votes now; for one who needs nobody else's it is the whole election."""
        if self.may_campaign and not isinstance(self.role, Leader):
            self.begin_campaign(pre=True)

    # --- what is asked of it

    def propose(self, commands: Sequence[bytes]) -> int:
        """Appends commands, at least one, as the leader; the index of the last one.

        They are committed when they are handed out with the term of now; if another entry
        is handed out at their index, they never will be. Raises `NotRaftLeader`, `Busy`, and
        `InvalidRequest` if one is too long.
        """
        return self._leading().propose(commands)

    def configure(self, configuration: Configuration) -> int:
        """Proposes other voters and learners; the index of the entry.

        Differs from the one now by at most one voter, who was a learner and has learnt, and is
        refused while another change, or everything of this term, is uncommitted (thesis 4.1).
        Raises `NotRaftLeader`, `Busy`, `InvalidRequest`.
        """
        return self._leading().configure(configuration)

    def read(self, token: int) -> None:
        """Asks for the index that an answer must rest on to be linearizable.

        Raises `NotRaftLeader` and `Busy`.
        """
        self._leading().read(token)

    def transfer(self, target: Voter) -> None:
        """Hands leadership to `target` once its log is whole; proposals are `Busy` meanwhile.

        Given up after an election time. Raises `NotRaftLeader`, `InvalidRequest`.
        """
        self._leading().transfer(target)

    def compacted(self, index: int) -> None:
        """An image as of `index` is on disk, and entries before it may be gone."""
        self.log.compacted(index)

    def _leading(self) -> Leader:
        if not isinstance(self.role, Leader):
            raise NotRaftLeader(f"broker {self.me.broker_id} does not lead the metadata quorum")
        return self.role

    # --- what is to be done

    def ready(self) -> Ready | None:
        """What is to be done; None: nothing, or an earlier one is still being done.

        Asked again after each `advance`: there may be more, of what is to be applied too.
        """
        if self._outstanding is not None:
            return None
        if isinstance(self.role, Leader):
            self.role.prepare()
        persist = self._persist()
        # What is committed by others may not be on this disk yet.
        end = min(self.log.commit, self.log.saved_index) + 1
        committed = tuple(self.log.entries(self.applied + 1, end, COMMITTED_BYTES_MAX))
        if not (persist or committed or self._outbox or self._reads or self._failed_reads):
            return None
        if committed:
            self.applied = committed[-1].index
        self._numbers += 1
        ready = Ready(
            self._numbers,
            persist,
            self._outbox.take(),
            committed,
            tuple(self._reads),
            tuple(self._failed_reads),
        )
        self._reads, self._failed_reads = [], []
        self._outstanding = ready
        return ready

    def _persist(self) -> Persist | None:
        state = None
        if (self.term, self.vote) != self._handed:
            state = HardState(self.term, self.vote, self.log.commit)
            self._handed = (self.term, self.vote)
        entries, snapshot = self.log.unsaved, self.log.unsaved_snapshot
        if state is None and not entries and snapshot is None:
            return None
        return Persist(snapshot, entries, state)

    def advance(self, ready: Ready) -> tuple[Message, ...]:
        """Everything that `ready` wants on disk is there; what may be said now."""
        assert ready is self._outstanding, "readies are done one by one, in order"
        self._outstanding = None
        persist = ready.persist
        if persist is not None:
            if persist.snapshot is not None:
                self.log.snapshot_saved(persist.snapshot)
                self.applied = max(self.applied, persist.snapshot.index)
            self.log.saved(persist.entries)
            if persist.hard_state is not None:
                self.saved_term = persist.hard_state.term
            self.role.saved()
        return self._outbox.release()

    # --- for roles

    def say(self, message: Message) -> None:
        """Once everything is on disk that the message speaks of."""
        self._outbox.say(message)

    def say_now(self, message: Message) -> None:
        """A leader's word rests on its election, which was on disk before it led."""
        self._outbox.say_now(message)

    def read_is_safe(self, read: Read) -> None:
        self._reads.append(read)

    def reads_failed(self, tokens: Sequence[int]) -> None:
        self._failed_reads.extend(tokens)

    def follow(self, term: int, leader: Voter | None) -> None:
        """Becomes a follower, of `leader` if it is known."""
        if isinstance(self.role, Leader):
            self.role.end()
        if term != self.term:
            self.term, self.vote = term, None
            self._outbox.forget_acknowledgements()
        self.leader = leader
        if leader is not None:
            self.leader_refused = False
        self.role = RaftFollower(self)

    def begin_campaign(self, *, pre: bool, transfer: bool = False) -> None:
        """Asks everybody for votes; with `pre` whether they would give them."""
        self.leader = None
        if not pre:
            self.term += 1
            self.vote = self.me
            self._outbox.forget_acknowledgements()
        self.role = Campaign(self, pre=pre, transfer=transfer)
        self.role.begin()

    def lead(self) -> None:
        """Won the election of this term."""
        self.leader = self.me
        self.leader_refused = False
        self.role = Leader(self)
        self.role.begin()

    def patience(self) -> int:
        """Ticks until a voter that hears nothing campaigns."""
        if self.configuration.voters == (self.me,):
            return 0
        if self.leader_refused:
            return self.rng.randrange(0, self.times.refused + 1)
        return self.rng.randrange(self.times.election, 2 * self.times.election)
