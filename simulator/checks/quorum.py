"""Checks of the metadata log: one leader a term, votes, committed entries, and that votes and entries are on
the disk before a message promises them (I1, I13)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from simulator.checks.truth import Knowledge, Setup, require
from tidelog_broker.core.raft.log import Log
from tidelog_broker.core.raft.messages import AppendResponse, Message, VoteRequest, VoteResponse
from tidelog_broker.core.raft.quorum import majority
from tidelog_broker.model import Configuration, Entry, Voter
from tidelog_broker.storage.raft.format import unpack_hard_state

if TYPE_CHECKING:
    from simulator.node import Node

HARD_STATE: Final = "hard-state"


class QuorumChecks(Knowledge):
    """Checks what voters promise and what leaders commit."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._entries: dict[int, tuple[int, int]] = {}
        """By index: term and fingerprint of each committed entry of the metadata log."""
        self.last_applied = 0
        """The last entry that a broker applied."""
        self.voters: tuple[Voter, ...] = ()
        """The voters after that entry."""
        self._terms: dict[int, Voter] = {}
        """By term: the leader of the quorum."""
        self._votes: dict[tuple[Voter, int], Voter] = {}
        """By voter and term: the candidate that got its vote."""
        self._acknowledged: dict[tuple[Voter, int], int] = {}
        """By voter and term: the last entry that it acknowledged to the leader of that term."""
        self._counted: dict[tuple[Voter, int], tuple[Voter, ...]] = {}
        """By leader and term: the voters in its log at the last look."""

    def controls(self, voter: Voter, term: int, log: Log) -> None:
        """A voter won the election of a term."""
        self.controllers[voter.broker_id] = None
        first = self._terms.setdefault(term, voter)
        require(
            first == voter,
            "I1",
            f"two leaders of the quorum in term {term}: {_name(first)} and {_name(voter)}",
        )
        self.mark("M Raft elected")
        last = self.last_applied
        if last:
            known = self._entries[last][0]
            has = log.term(last)
            require(
                log.last_index >= last and has in (known, None),
                "I1",
                f"{_name(voter)} leads in term {term}; its log ends at entry {log.last_index} and "
                f"has entry {last} "
                f"of term {has}; entry {last} of term {known} is committed",
            )

    def committed_entries(self, voter: Voter, term: int, before: int, log: Log) -> None:
        """The commit index of a leader of the quorum grows (Raft 5.4.2)."""
        if log.commit > before:
            has = log.term(log.commit)
            require(
                has == term,
                "I1",
                f"{_name(voter)} leads in term {term} and commits entry {log.commit} of term "
                f"{has} by counting; "
                "only an entry of its own term may be committed by counting",
            )
            voters = log.configuration.voters
            # The voters may have changed in the same turn.
            before_that = self._counted.get((voter, term), voters)
            require(
                any(self._majority_has(voter, term, log.commit, those) for those in (voters, before_that)),
                "I1",
                f"{_name(voter)} commits entry {log.commit} in term {term}, and no majority of "
                f"{_names(voters)} has "
                f"acknowledged it",
            )
        self._counted[voter, term] = log.configuration.voters

    def _majority_has(self, leader: Voter, term: int, index: int, voters: tuple[Voter, ...]) -> bool:
        have = sum(
            self._keeps(self.brokers[one.broker_id], index)
            if one == leader
            else self._acknowledged.get((one, term), 0) >= index
            for one in voters
        )
        return have >= majority(len(voters))

    @staticmethod
    def _keeps(node: Node, index: int) -> bool:
        """Whether the metadata log of a broker survives a power loss up to entry `index`."""
        assert node.assembly is not None
        log = node.assembly.controller._driver.log
        if index > log.last_index:
            return False
        if index < log.first_index:
            return index <= log.snapshot_index
        segment = log._segment_of(index)
        kept = node.disk.content_kept(segment.path)
        return kept is not None and node.disk.synced_bytes(segment.path) >= segment.position(index + 1)

    def applied(self, broker: int, entry: Entry) -> None:
        """A broker applies an entry that it believes to be committed."""
        fingerprint = (entry.term, zlib.crc32(entry.payload))
        known = self._entries.setdefault(entry.index, fingerprint)
        require(
            known == fingerprint,
            "I1",
            f"broker {broker} applies entry {entry.index} of term {entry.term}; another broker applied "
            f"another entry {entry.index}, of term {known[0]}",
        )
        self.last_applied = max(self.last_applied, entry.index)

    def entries_forgotten(self, last: int) -> None:
        """The metadata continues by force behind entry `last` (M2a)."""
        self._entries = {index: known for index, known in self._entries.items() if index <= last}
        self.last_applied = last

    def applied_term(self, index: int) -> int | None:
        """The term of an entry that a broker applied; None: no broker did."""
        known = self._entries.get(index)
        return None if known is None else known[0]

    def configured(self, configuration: Configuration) -> None:
        """An entry changes the voters."""
        before, self.voters = self.voters, configuration.voters
        if len(before) > 1 or len(self.voters) > 1:
            self.mark("M1 voters changed")
        known = {voter.broker_id: voter.directory_id for voter in before}
        if any(known.get(one.broker_id, one.directory_id) != one.directory_id for one in self.voters):
            require(
                False,
                "M2",
                f"one configuration entry replaces the disk of a voter; it must remove the old disk first: "
                f"{_names(before)}; {_names(self.voters)}",
            )
        gone = [one for one in before if one not in self.voters]
        if any(self.brokers[one.broker_id].directory_id not in (b"", one.directory_id) for one in gone):
            self.mark("M2 a voter's lost disk leaves")

    def said(self, me: Voter, last_index: int, message: Message) -> None:
        """A voter sends a message. Its promise counts from now on, also if the message is lost."""
        if isinstance(message, AppendResponse) and not message.rejected:
            self._told_of_entries(me, message)
        if not isinstance(message, VoteRequest | VoteResponse) or message.pre:
            return
        if isinstance(message, VoteResponse) and not message.granted:
            return
        require(
            message.source == me,
            "I13",
            f"{_name(me)} sends a vote for {_name(message.source)}, which is another disk",
        )
        require(last_index > 0, "I13", f"{_name(me)} votes in term {message.term} with an empty log")
        # A candidate has voted for itself.
        choice = me if isinstance(message, VoteRequest) else message.target
        first = self._votes.setdefault((me, message.term), choice)
        require(
            first == choice,
            "I13",
            f"{_name(me)} votes twice in term {message.term}: for {_name(first)} and {_name(choice)}",
        )
        self._vote_is_kept(me, message.term, choice)
        if choice != me:
            self.mark("M Raft voted")
            self.surroundings.vote_is_given(me.broker_id)

    def _told_of_entries(self, me: Voter, message: AppendResponse) -> None:
        """Entries must be on the disk before they are acknowledged."""
        require(
            self._keeps(self.brokers[me.broker_id], message.index),
            "I1",
            f"{_name(me)} acknowledges entry {message.index} in term {message.term}, and the entry is "
            "not on its disk",
        )
        key = (me, message.term)
        self._acknowledged[key] = max(self._acknowledged.get(key, 0), message.index)

    def _vote_is_kept(self, me: Voter, term: int, choice: Voter) -> None:
        """A vote must be on the disk before it is sent."""
        node = self.brokers[me.broker_id]
        assert node.assembly is not None
        kept = node.disk.content_kept(f"{node.assembly.controller._driver.log._folder}/{HARD_STATE}")
        state = None if kept is None else unpack_hard_state(kept)
        require(
            state is not None and (state.term > term or (state.term == term and state.vote == choice)),
            "I13",
            f"{_name(me)} votes for {_name(choice)} in term {term}, and the state on its disk is {state}",
        )


def _name(voter: Voter) -> str:
    return f"voter {voter.broker_id} (directory {voter.directory_id.hex()[:8]})"


def _names(voters: tuple[Voter, ...]) -> str:
    return ", ".join(_name(voter) for voter in voters)
