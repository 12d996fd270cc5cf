"""Checks of the metadata log: who leads a term, who votes for whom, what is committed, and what of it is
on a disk before anybody speaks of it (I1, I13)."""

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
    """See the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._entries: dict[int, tuple[int, int]] = {}
        """Of the metadata log, by index: term and fingerprint of what was committed."""
        self.last_applied = 0
        """The last entry that somebody applied."""
        self.voters: tuple[Voter, ...] = ()
        """As of that entry."""
        self._terms: dict[int, Voter] = {}
        """Who led the quorum, by term."""
        self._votes: dict[tuple[Voter, int], Voter] = {}
        """By voter and term: who was told that it has the vote."""
        self._acknowledged: dict[tuple[Voter, int], int] = {}
        """By voter and term: up to which entry it told the leader of that term that it has all."""
        self._counted: dict[tuple[Voter, int], tuple[Voter, ...]] = {}
        """By leader and term: who voted, as its log had it when it was looked at last."""

    def controls(self, voter: Voter, term: int, log: Log) -> None:
        """A voter won the election of a term."""
        self.controllers[voter.broker_id] = None
        first = self._terms.setdefault(term, voter)
        require(first == voter, "I1", f"{first} and {voter} lead the quorum in term {term}")
        self.mark("M Raft elected")
        last = self.last_applied
        if last:
            known = self._entries[last][0]
            has = log.term(last)
            require(
                log.last_index >= last and has in (known, None),
                "I1",
                f"{voter} leads in term {term} with {log.last_index} entries, entry {last} of term {has}; "
                f"committed is entry {last} of term {known}",
            )

    def committed_entries(self, voter: Voter, term: int, before: int, log: Log) -> None:
        """A leader of the quorum takes more for committed than it did (Raft 5.4.2)."""
        if log.commit > before:
            has = log.term(log.commit)
            require(
                has == term,
                "I1",
                f"{voter} commits entry {log.commit} of term {has} by counting, and leads in term {term}",
            )
            voters = log.configuration.voters
            # Who votes may have changed since, in the same moment.
            before_that = self._counted.get((voter, term), voters)
            require(
                any(self._majority_has(voter, term, log.commit, those) for those in (voters, before_that)),
                "I1",
                f"{voter} commits entry {log.commit} in term {term}, and most of {voters} have not said that "
                "they have it",
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
        """Whether a loss of power leaves a broker its metadata log up to `index`."""
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
            f"broker {broker} applies another entry {entry.index} of term {entry.term}; it was of {known[0]}",
        )
        self.last_applied = max(self.last_applied, entry.index)

    def entries_forgotten(self, last: int) -> None:
        """The metadata goes on by force behind entry `last` (M2a)."""
        self._entries = {index: known for index, known in self._entries.items() if index <= last}
        self.last_applied = last

    def applied_term(self, index: int) -> int | None:
        """Of an entry that somebody applied; None: nobody did."""
        known = self._entries.get(index)
        return None if known is None else known[0]

    def configured(self, configuration: Configuration) -> None:
        """An entry says who votes."""
        before, self.voters = self.voters, configuration.voters
        if len(before) > 1 or len(self.voters) > 1:
            self.mark("M1 voters changed")
        known = {voter.broker_id: voter.directory_id for voter in before}
        if any(known.get(one.broker_id, one.directory_id) != one.directory_id for one in self.voters):
            require(False, "M2", f"the disk of a voter is changed in one step: {before} {self.voters}")
        gone = [one for one in before if one not in self.voters]
        if any(self.brokers[one.broker_id].directory_id not in (b"", one.directory_id) for one in gone):
            self.mark("M2 a voter's lost disk leaves")

    def said(self, me: Voter, last_index: int, message: Message) -> None:
        """A voter says something; what it promises counts from here on, whatever becomes of it."""
        if isinstance(message, AppendResponse) and not message.rejected:
            self._told_of_entries(me, message)
        if not isinstance(message, VoteRequest | VoteResponse) or message.pre:
            return
        if isinstance(message, VoteResponse) and not message.granted:
            return
        require(message.source == me, "I13", f"{me} speaks for {message.source}, which is another disk")
        require(last_index > 0, "I13", f"{me} votes in term {message.term} with an empty log")
        # Whoever asks has voted for itself.
        choice = me if isinstance(message, VoteRequest) else message.target
        first = self._votes.setdefault((me, message.term), choice)
        require(first == choice, "I13", f"{me} votes for {first} and for {choice} in term {message.term}")
        self._vote_is_kept(me, message.term, choice)
        if choice != me:
            self.mark("M Raft voted")
            self.surroundings.vote_is_given(me.broker_id)

    def _told_of_entries(self, me: Voter, message: AppendResponse) -> None:
        """Persist before you speak: entries."""
        require(
            self._keeps(self.brokers[me.broker_id], message.index),
            "I1",
            f"{me} says in term {message.term} that it has entry {message.index}, which is not on its disk",
        )
        key = (me, message.term)
        self._acknowledged[key] = max(self._acknowledged.get(key, 0), message.index)

    def _vote_is_kept(self, me: Voter, term: int, choice: Voter) -> None:
        """Persist before you speak: votes."""
        node = self.brokers[me.broker_id]
        assert node.assembly is not None
        kept = node.disk.content_kept(f"{node.assembly.controller._driver.log._folder}/{HARD_STATE}")
        state = None if kept is None else unpack_hard_state(kept)
        require(
            state is not None and (state.term > term or (state.term == term and state.vote == choice)),
            "I13",
            f"{me} votes for {choice} in term {term}; its disk knows of {state}",
        )
