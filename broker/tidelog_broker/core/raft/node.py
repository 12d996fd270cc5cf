"""One voter or learner of the metadata log: Raft without I/O.

`tick`, `step`, `propose`, … change the node's state. `ready` says what must be written, sent
and applied; `advance` says that the writing is done. One ready is outstanding at a time;
messages may be stepped meanwhile. So a leader whose disk hangs falls silent, and another
node is elected: the leader could not apply what the others commit.

This module only joins the parts: `state` (term, vote, log), one role (`following`,
`campaigning`, `leading`), and `stepping` (which messages count). A role returns what the node
becomes next (`transitions`); it is performed here and nowhere else.

Rules that go beyond the paper: pre-vote (thesis 9.6); check-quorum, and with it the rule
that a voter that hears a leader refuses its vote to other nodes, unless the leader's machine
refused its connection (DESIGN 6); ReadIndex (6.4); changes of one voter at a time, and only
after an entry of the current term is committed (4.1, and Ongaro's correction of 2015);
transfer of leadership (3.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tidelog_broker.core.raft.campaigning import Candidate
from tidelog_broker.core.raft.errors import NotRaftLeader
from tidelog_broker.core.raft.following import RaftFollower
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.log import Log, RaftStorage
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.core.raft.ready import Persist, Ready
from tidelog_broker.core.raft.state import RaftState, RandomSource
from tidelog_broker.core.raft.stepping import Role, admits, handle, role_change
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.core.raft.transitions import BecomeCandidate, BecomeFollower, BecomeLeader, Transition
from tidelog_broker.model import Configuration, HardState, Voter

COMMITTED_BYTES_MAX = 8 << 20
"""Committed entries that one ready hands out, about; at least one entry."""


class RaftNode:
    """A voter or learner: its state, its role, and the ready that is outstanding. Not safe for threads."""

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
        self.state = RaftState(me, storage, hard_state, configurations, times=times, rng=rng)
        self.role: Role = RaftFollower(self.state)
        self.applied = 0 if storage.snapshot is None else storage.snapshot.index
        """Everything up to here was handed out to be applied, or is in the snapshot."""
        self._handed = (hard_state.term, hard_state.vote)
        """Term and vote that the newest ready makes durable, or that an earlier one made durable."""
        self._numbers = 0
        self._outstanding: Ready | None = None

    def __repr__(self) -> str:
        state = self.state
        leader = "?" if state.leader is None else state.leader.broker_id
        status = f"{self.role_name} term={state.term} leader={leader}"
        return f"<RaftNode {state.me.broker_id} {status} {state.log!r}>"

    # --- status

    @property
    def me(self) -> Voter:
        return self.state.me

    @property
    def term(self) -> int:
        return self.state.term

    @property
    def leader(self) -> Voter | None:
        """The leader of this term; None: not known."""
        return self.state.leader

    @property
    def log(self) -> Log:
        return self.state.log

    @property
    def role_name(self) -> str:
        """For status and logs: leader, candidate, follower or learner."""
        match self.role:
            case RaftFollower():
                return "follower" if self.me in self.configuration.voters else "learner"
            case Candidate():
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
        """The voters and learners, by the newest configuration entry, committed or not."""
        return self.log.configuration

    def configuration_at(self, index: int) -> Configuration:
        """The voters and learners as of `index`: what a snapshot as of `index` says."""
        return self.log.configuration_at(index)

    # --- events

    def tick(self) -> None:
        """Time passes, by one tick."""
        self._become(self.role.tick())

    def step(self, message: Message) -> None:
        """A message arrives."""
        if not admits(self.state, self.role, message):
            return
        self._become(role_change(self.state, self.role, message))
        self._become(handle(self.state, self.role, message))

    def refused(self, peer: Voter) -> None:
        """The machine of `peer` refused a connection: its process is gone. May be called repeatedly."""
        state = self.state
        if peer == state.leader and peer != state.me and not state.leader_refused:
            state.leader_refused = True
            if isinstance(self.role, RaftFollower):
                # It campaigns soon.
                self.role.restart_timeout()

    def disconnected(self, peer: Voter) -> None:
        """The stream to `peer` broke: messages on their way may be lost."""
        if isinstance(self.role, Leader):
            self.role.disconnected(peer)

    def campaign(self) -> None:
        """Asks for votes now. For the only voter this is the whole election."""
        if self.state.may_campaign and not isinstance(self.role, Leader):
            self._become(BecomeCandidate(pre=True))

    # --- requests

    def propose(self, commands: Sequence[bytes]) -> int:
        """Appends commands, at least one, as the leader; returns the index of the last one.

        The commands are committed when they are handed out with the current term. If another
        entry is handed out at their index, they never will be. Raises `NotRaftLeader`, `Busy`,
        and `InvalidRequest` if a command is too long.
        """
        return self._leading().propose(commands)

    def configure(self, configuration: Configuration) -> int:
        """Proposes other voters and learners; returns the index of the entry.

        The new configuration differs from the current one by at most one voter, which was a learner
        and has a log up to this term. It is refused while another change, or everything of this
        term, is uncommitted (thesis 4.1). Raises `NotRaftLeader`, `Busy`, `InvalidRequest`.
        """
        return self._leading().configure(configuration)

    def read(self, token: int) -> None:
        """Asks for the index that a linearizable read must rest on.

        Raises `NotRaftLeader` and `Busy`.
        """
        self._leading().read(token)

    def transfer(self, target: Voter) -> None:
        """Hands leadership to `target` once its log is complete; proposals are `Busy` meanwhile.

        The transfer ends without success after an election timeout. Raises `NotRaftLeader`, `InvalidRequest`.
        """
        self._leading().transfer(target)

    def compacted(self, index: int) -> None:
        """A snapshot as of `index` is on disk, and entries before it may be gone."""
        self.log.compacted(index)

    def _leading(self) -> Leader:
        if not isinstance(self.role, Leader):
            raise NotRaftLeader(f"broker {self.me.broker_id} does not lead the metadata quorum")
        return self.role

    # --- what must be done

    def ready(self) -> Ready | None:
        """What must be done now; None: nothing, or an earlier ready is still outstanding.

        Call it again after each `advance`: there may be more to do, and more to apply.
        """
        if self._outstanding is not None:
            return None
        if isinstance(self.role, Leader):
            self.role.prepare()
        state, log = self.state, self.log
        persist = self._persist()
        # An entry that the other voters committed may not be on this disk yet.
        end = min(log.commit, log.saved_index) + 1
        committed = tuple(log.entries(self.applied + 1, end, COMMITTED_BYTES_MAX))
        if not (persist or committed or state.outbox or state.reads or state.failed_reads):
            return None
        if committed:
            self.applied = committed[-1].index
        self._numbers += 1
        ready = Ready(
            self._numbers,
            persist,
            state.outbox.take(),
            committed,
            tuple(state.reads),
            tuple(state.failed_reads),
        )
        state.reads, state.failed_reads = [], []
        self._outstanding = ready
        return ready

    def _persist(self) -> Persist | None:
        state, hard_state = self.state, None
        if (state.term, state.vote) != self._handed:
            hard_state = HardState(state.term, state.vote, state.log.commit)
            self._handed = (state.term, state.vote)
        entries, snapshot = state.log.unsaved, state.log.unsaved_snapshot
        if hard_state is None and not entries and snapshot is None:
            return None
        return Persist(snapshot, entries, hard_state)

    def advance(self, ready: Ready) -> tuple[Message, ...]:
        """Everything that `ready` persists is on disk; returns the messages that may be sent now."""
        assert ready is self._outstanding, "readies are done one by one, in order"
        self._outstanding = None
        persist = ready.persist
        if persist is not None:
            if persist.snapshot is not None:
                self.log.snapshot_saved(persist.snapshot)
                self.applied = max(self.applied, persist.snapshot.index)
            self.log.saved(persist.entries)
            if persist.hard_state is not None:
                self.state.saved_term = persist.hard_state.term
            if isinstance(self.role, Candidate | Leader):
                self._become(self.role.saved())
        return self.state.outbox.release()

    # --- transitions

    def _become(self, transition: Transition | None) -> None:
        """Performs a transition, and those that follow from it at once: the only voter wins immediately."""
        while transition is not None:
            match transition:
                case BecomeFollower():
                    self._follow(transition)
                    transition = None
                case BecomeCandidate():
                    transition = self._campaign(transition)
                case BecomeLeader():
                    self._lead()
                    transition = None
                case _:
                    assert_never(transition)

    def _follow(self, transition: BecomeFollower) -> None:
        state = self.state
        if isinstance(self.role, Leader):
            self.role.end()
        if transition.term != state.term:
            state.begin_term(transition.term, vote=None)
        state.leader = transition.leader
        if transition.leader is not None:
            state.leader_refused = False
        self.role = RaftFollower(state)

    def _campaign(self, transition: BecomeCandidate) -> Transition | None:
        state = self.state
        state.leader = None
        if not transition.pre:
            state.begin_term(state.term + 1, vote=state.me)
        self.role = Candidate(state, pre=transition.pre, transfer=transition.transfer)
        return self.role.begin()

    def _lead(self) -> None:
        state = self.state
        state.leader = state.me
        state.leader_refused = False
        self.role = Leader(state)
        self.role.begin()
