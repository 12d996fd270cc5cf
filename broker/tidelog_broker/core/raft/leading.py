"""A leader: it replicates its log, commits what a majority has, and steps down when no majority answers.

Neighbours: `progress` (how far a peer is), `sending` (what a peer gets next), `quorum` (counting),
`reading` (linearizable reads), `uncommitted` (the bound on proposals), `changes` (changes of the voters).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import InvalidRequest
from tidelog_broker.core.raft.changes import check_change, check_learnt, check_settled
from tidelog_broker.core.raft.errors import Busy
from tidelog_broker.core.raft.messages import (
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    TimeoutNow,
)
from tidelog_broker.core.raft.progress import Mode, Progress
from tidelog_broker.core.raft.quorum import majority, quorum_index
from tidelog_broker.core.raft.reading import PendingReads
from tidelog_broker.core.raft.sending import next_message
from tidelog_broker.core.raft.state import RaftState
from tidelog_broker.core.raft.transitions import BecomeFollower, Transition
from tidelog_broker.core.raft.uncommitted import Uncommitted
from tidelog_broker.model import PAYLOAD_BYTES_MAX, Configuration, Entry, EntryType, Voter


class Leader:
    """The leader of one term."""

    __slots__ = (
        "_elapsed",
        "_first_index",
        "_reads",
        "_round",
        "_since_check",
        "_state",
        "_successor",
        "_transfer_ticks",
        "_uncommitted",
        "progress",
    )

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self.progress: dict[Voter, Progress] = {}
        """Of every other voter and learner, in the order of the configuration."""
        self._first_index = state.log.last_index + 1
        """The first entry of this term."""
        self._elapsed = 0
        """Ticks since the last heartbeat round."""
        self._since_check = 0
        """Ticks since the last check that a majority answers."""
        self._round = 0
        """The newest heartbeat round."""
        self._reads = PendingReads()
        self._uncommitted = Uncommitted()
        self._successor: Voter | None = None
        """The target of a leadership transfer; proposals are refused meanwhile."""
        self._transfer_ticks = 0
        """Ticks after which the transfer is given up."""
        self._follow_configuration()

    def begin(self) -> None:
        self._append([(EntryType.NOOP, b"")])

    def end(self) -> None:
        """The leadership is over: pending reads fail."""
        self._state.failed_reads.extend(self._reads.end())

    # --- time

    def tick(self) -> Transition | None:
        self._elapsed += 1
        self._since_check += 1
        times = self._state.times
        if self._successor is not None:
            self._transfer_ticks -= 1
            if self._transfer_ticks <= 0:
                # The target did not take over in time; this node goes on leading.
                self._successor = None
        if self._since_check >= times.election:
            self._since_check = 0
            if not self._heard_majority():
                return BecomeFollower(self._state.term, None)
        if self._elapsed >= times.heartbeat:
            self._send_heartbeats()
        return None

    def _heard_majority(self) -> bool:
        """Check-quorum: a leader that no majority answers may be deposed without knowing it."""
        voters = self._state.configuration.voters
        heard = sum(voter == self._state.me or self.progress[voter].heard for voter in voters)
        for progress in self.progress.values():
            progress.heard = False
            progress.waited()
        return heard >= majority(len(voters))

    def _send_heartbeats(self) -> None:
        self._elapsed = 0
        self._round += 1
        state = self._state
        for peer, progress in self.progress.items():
            # Above `match` the peer may have no entry, or another one.
            commit = min(progress.match, state.log.commit)
            state.send_now(HeartbeatRequest(state.term, state.me, peer, round=self._round, commit=commit))

    # --- entries

    def propose(self, commands: Sequence[bytes]) -> int:
        if self._successor is not None:
            raise Busy("leadership is being handed over; the next leader takes proposals")
        assert commands, "at least one"
        longest = max(len(command) for command in commands)
        if longest > PAYLOAD_BYTES_MAX:
            raise InvalidRequest(
                f"a command of {longest} bytes; the metadata log takes up to {PAYLOAD_BYTES_MAX}"
            )
        count = self._uncommitted.admit(sum(len(command) for command in commands), len(commands))
        last_index = self._append([(EntryType.COMMAND, command) for command in commands])
        self._uncommitted.add(last_index, count)
        return last_index

    def configure(self, configuration: Configuration) -> int:
        if self._successor is not None:
            raise Busy("leadership is being handed over; the next leader takes changes of the voters")
        log = self._state.log
        check_settled(log.commit, self._first_index, log.configuration_index)
        check_change(log.configuration, configuration)
        match = {peer: progress.match for peer, progress in self.progress.items()}
        check_learnt(log.configuration, configuration, match, self._first_index)
        return self._append([(EntryType.CONFIGURATION, configuration.encode())])

    def _append(self, payloads: Sequence[tuple[EntryType, bytes]]) -> int:
        log, term = self._state.log, self._state.term
        first = log.last_index + 1
        log.append([Entry(first + at, term, kind, payload) for at, (kind, payload) in enumerate(payloads)])
        if log.configuration_index >= first:
            self._follow_configuration()
        for peer in self.progress:
            self._send(peer)
        return log.last_index

    def _follow_configuration(self) -> None:
        configuration = self._state.configuration
        members = (*configuration.voters, *configuration.learners)
        next_index = self._state.log.last_index + 1
        self.progress = {
            peer: self.progress.get(peer) or Progress(next_index)
            for peer in members
            if peer != self._state.me
        }
        if self._successor is not None and self._successor not in configuration.voters:
            self._successor = None

    def saved(self) -> Transition | None:
        """The leader's own entries are on disk and count now."""
        return self._commit()

    def _reached(self) -> int:
        """The index that a majority has on disk; the leader's own entries count once they are saved."""
        reached = {peer: progress.match for peer, progress in self.progress.items()}
        reached[self._state.me] = self._state.log.saved_index
        return quorum_index(self._state.configuration.voters, reached)

    def _commit(self) -> Transition | None:
        """Raft 5.4.2: only an entry of this term is committed by counting, and with it all before it."""
        state, log = self._state, self._state.log
        index = self._reached()
        if index <= log.commit or log.term(index) != state.term:
            return None
        log.commit = index
        self._uncommitted.committed(index)
        self._reads.term_committed(index, self._round + 1)
        for peer in self.progress:
            self._send(peer, empty=True)
        if log.configuration_index <= index and state.me not in state.configuration.voters:
            # This node is removed, and a majority of the others know it: one of them leads from now on.
            return BecomeFollower(state.term, None)
        return None

    # --- peers

    def _send(self, peer: Voter, *, empty: bool = False) -> bool:
        state = self._state
        message = next_message(state.term, state.me, peer, self.progress[peer], state.log, empty=empty)
        if message is not None:
            state.send_now(message)
        return message is not None

    def disconnected(self, peer: Voter) -> None:
        if peer in self.progress:
            self.progress[peer].lost()

    def answered(self, response: AppendResponse | HeartbeatResponse) -> Transition | None:
        progress = self.progress.get(response.source)
        if progress is None:
            # The sender is no voter or learner any more.
            return None
        progress.heard = True
        if isinstance(response, HeartbeatResponse):
            self._heartbeat_answered(response, progress)
        elif response.rejected:
            self._rejected(response, progress)
        else:
            return self._accepted(response, progress)
        return None

    def _accepted(self, response: AppendResponse, progress: Progress) -> Transition | None:
        was_paused, commit = progress.paused, self._state.log.commit
        if progress.acknowledged(response.index):
            transition = self._commit()
            if transition is not None:
                return transition
        elif not was_paused:
            return None
        if was_paused and self._state.log.commit == commit:
            # The peer may not know the last commit: it was paused, and an empty message was not sent then.
            self._send(response.source, empty=True)
        while self._send(response.source):
            pass
        if response.source == self._successor:
            self._hand_over()
        return None

    def _rejected(self, response: AppendResponse, progress: Progress) -> None:
        log, hint = self._state.log, response.hint_index
        if response.hint_term:
            hint, _ = log.last_possible_agreement(min(hint, log.last_index), response.hint_term)
        if progress.rejected(response.index, hint):
            self._send(response.source, empty=True)

    def _heartbeat_answered(self, response: HeartbeatResponse, progress: Progress) -> None:
        progress.round = max(progress.round, response.round)
        progress.alive()
        if progress.match < self._state.log.last_index or progress.mode is Mode.PROBE:
            # Earlier messages may be lost; a peer that lacks their entries rejects this one.
            self._send(response.source, empty=True)
        self._answer_reads()

    # --- reads

    def read(self, token: int) -> None:
        commit = self._state.log.commit
        settled = commit >= self._first_index
        self._reads.add(token, commit=commit if settled else None, next_round=self._round + 1)

    def prepare(self) -> None:
        """All reads that came since the last ready share one heartbeat round."""
        if self._reads.needs(self._round + 1):
            self._send_heartbeats()
            self._answer_reads()

    def _answer_reads(self) -> None:
        state = self._state
        reached = {peer: progress.round for peer, progress in self.progress.items()}
        reached[state.me] = self._round
        state.reads += self._reads.answered(quorum_index(state.configuration.voters, reached))

    # --- leadership transfer

    def transfer(self, target: Voter) -> None:
        if target == self._state.me or target not in self._state.configuration.voters:
            raise InvalidRequest(f"broker {target.broker_id} cannot take over; only another voter can")
        self._successor = target
        self._transfer_ticks = self._state.times.election
        self._send(target)
        self._hand_over()

    def _hand_over(self) -> None:
        target = self._successor
        if target is not None and self.progress[target].match == self._state.log.last_index:
            self._state.send_now(TimeoutNow(self._state.term, self._state.me, target))
