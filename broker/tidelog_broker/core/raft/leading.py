"""A leader: replicates its log, commits what a majority has, and steps down when it cannot know.

Neighbours: `progress` (how far a peer is), `sending` (what it gets), `quorum` (counting),
`reading` (questions), `uncommitted` (the bound on proposals), `changes` (who may vote).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
from tidelog_broker.core.raft.reading import Questions
from tidelog_broker.core.raft.sending import next_message
from tidelog_broker.core.raft.uncommitted import Uncommitted
from tidelog_broker.model import PAYLOAD_BYTES_MAX, Configuration, Entry, EntryType, Voter

if TYPE_CHECKING:
    from tidelog_broker.core.raft.node import RaftNode


class Leader:
    """See the module."""

    __slots__ = (
        "_elapsed",
        "_first_index",
        "_node",
        "_questions",
        "_round",
        "_since_check",
        "_successor",
        "_successor_patience",
        "_uncommitted",
        "progress",
    )

    def __init__(self, node: RaftNode) -> None:
        self._node = node
        self.progress: dict[Voter, Progress] = {}
        """Of everybody else, in the order of the configuration."""
        self._first_index = node.log.last_index + 1
        """The first entry of this term."""
        self._elapsed = 0
        """Ticks since the last heartbeat round."""
        self._since_check = 0
        """Ticks since it last looked whom it hears."""
        self._round = 0
        """The newest heartbeat round."""
        self._questions = Questions()
        self._uncommitted = Uncommitted()
        self._successor: Voter | None = None
        """Who is to lead next; proposals wait for it."""
        self._successor_patience = 0
        self._follow_configuration()

    def begin(self) -> None:
        self._append([(EntryType.NOOP, b"")])

    def end(self) -> None:
        """Leads no more: questions cannot be answered."""
        self._node.reads_failed(self._questions.end())

    # --- time

    def tick(self) -> None:
        self._elapsed += 1
        self._since_check += 1
        times = self._node.times
        if self._successor is not None:
            self._successor_patience -= 1
            if self._successor_patience <= 0:
                # It did not take over in time; this node goes on.
                self._successor = None
        if self._since_check >= times.election:
            self._since_check = 0
            if not self._heard_majority():
                self._node.follow(self._node.term, None)
                return
        if self._elapsed >= times.heartbeat:
            self._beat()

    def hears_leader(self) -> bool:
        return True

    def leader_refused(self) -> None:
        """It is the leader."""

    def _heard_majority(self) -> bool:
        """Check-quorum: one that no majority answers may be deposed, and would not know it."""
        voters = self._node.configuration.voters
        heard = sum(voter == self._node.me or self.progress[voter].heard for voter in voters)
        for progress in self.progress.values():
            progress.heard = False
            progress.waited()
        return heard >= majority(len(voters))

    def _beat(self) -> None:
        self._elapsed = 0
        self._round += 1
        node = self._node
        for peer, progress in self.progress.items():
            # What is not known to be with the peer may not be there, or be another entry.
            commit = min(progress.match, node.log.commit)
            node.say_now(HeartbeatRequest(node.term, node.me, peer, round=self._round, commit=commit))

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
        log = self._node.log
        check_settled(log.commit, self._first_index, log.configuration_index)
        check_change(log.configuration, configuration)
        match = {peer: progress.match for peer, progress in self.progress.items()}
        check_learnt(log.configuration, configuration, match, self._first_index)
        return self._append([(EntryType.CONFIGURATION, configuration.encode())])

    def _append(self, payloads: Sequence[tuple[EntryType, bytes]]) -> int:
        log, term = self._node.log, self._node.term
        first = log.last_index + 1
        log.append([Entry(first + at, term, kind, payload) for at, (kind, payload) in enumerate(payloads)])
        if log.configuration_index >= first:
            self._follow_configuration()
        for peer in self.progress:
            self._send(peer)
        return log.last_index

    def _follow_configuration(self) -> None:
        configuration = self._node.configuration
        members = (*configuration.voters, *configuration.learners)
        next_index = self._node.log.last_index + 1
        self.progress = {
            peer: self.progress.get(peer) or Progress(next_index) for peer in members if peer != self._node.me
        }
        if self._successor is not None and self._successor not in configuration.voters:
            self._successor = None

    def saved(self) -> None:
        """Its own entries count from now."""
        self._commit()

    def _reached(self) -> int:
        """What a majority has on disk; this node's own entries count once they are saved."""
        reached = {peer: progress.match for peer, progress in self.progress.items()}
        reached[self._node.me] = self._node.log.saved_index
        return quorum_index(self._node.configuration.voters, reached)

    def _commit(self) -> None:
        """Raft 5.4.2: only an entry of this term is committed by counting, and all before it with it."""
        node, log = self._node, self._node.log
        index = self._reached()
        if index <= log.commit or log.term(index) != node.term:
            return
        log.commit = index
        self._uncommitted.committed(index)
        self._questions.term_committed(index, self._round + 1)
        for peer in self.progress:
            self._send(peer, empty=True)
        if log.configuration_index <= index and node.me not in node.configuration.voters:
            # Removed, and the others know: one of them leads from now on.
            node.follow(node.term, None)

    # --- peers

    def _send(self, peer: Voter, *, empty: bool = False) -> bool:
        node = self._node
        message = next_message(node.term, node.me, peer, self.progress[peer], node.log, empty=empty)
        if message is not None:
            node.say_now(message)
        return message is not None

    def disconnected(self, peer: Voter) -> None:
        if peer in self.progress:
            self.progress[peer].lost()

    def answered(self, response: AppendResponse | HeartbeatResponse) -> None:
        progress = self.progress.get(response.source)
        if progress is None:
            # No voter or learner any more.
            return
        progress.heard = True
        if isinstance(response, HeartbeatResponse):
            self._beaten(response, progress)
        elif response.rejected:
            self._rejected(response, progress)
        else:
            self._accepted(response, progress)

    def _accepted(self, response: AppendResponse, progress: Progress) -> None:
        was_paused, commit = progress.paused, self._node.log.commit
        if progress.acknowledged(response.index):
            self._commit()
            if self._node.role is not self:
                return
        elif not was_paused:
            return
        if was_paused and self._node.log.commit == commit:
            # It may not know of the last commit, which was not news enough to wait for.
            self._send(response.source, empty=True)
        while self._send(response.source):
            pass
        if response.source == self._successor:
            self._hand_over()

    def _rejected(self, response: AppendResponse, progress: Progress) -> None:
        log, hint = self._node.log, response.hint_index
        if response.hint_term:
            hint, _ = log.last_possible_agreement(min(hint, log.last_index), response.hint_term)
        if progress.rejected(response.index, hint):
            self._send(response.source, empty=True)

    def _beaten(self, response: HeartbeatResponse, progress: Progress) -> None:
        progress.round = max(progress.round, response.round)
        progress.alive()
        if progress.match < self._node.log.last_index or progress.mode is Mode.PROBE:
            # What was sent may be lost; one that lacks it says so.
            self._send(response.source, empty=True)
        self._answer_questions()

    # --- questions

    def read(self, token: int) -> None:
        commit = self._node.log.commit
        settled = commit >= self._first_index
        self._questions.ask(token, commit=commit if settled else None, next_round=self._round + 1)

    def prepare(self) -> None:
        """Questions that came since the last ready share one heartbeat round."""
        if self._questions.needs(self._round + 1):
            self._beat()
            self._answer_questions()

    def _answer_questions(self) -> None:
        node = self._node
        reached = {peer: progress.round for peer, progress in self.progress.items()}
        reached[node.me] = self._round
        for read in self._questions.answered(quorum_index(node.configuration.voters, reached)):
            node.read_is_safe(read)

    # --- handing over

    def transfer(self, target: Voter) -> None:
        if target == self._node.me or target not in self._node.configuration.voters:
            raise InvalidRequest(f"broker {target.broker_id} cannot take over; only another voter can")
        self._successor = target
        self._successor_patience = self._node.times.election
        self._send(target)
        self._hand_over()

    def _hand_over(self) -> None:
        target = self._successor
        if target is not None and self.progress[target].match == self._node.log.last_index:
            self._node.say_now(TimeoutNow(self._node.term, self._node.me, target))
