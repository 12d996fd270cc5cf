"""Checks of the metadata log: who leads a term, who votes for whom, what is committed (I1, I13)."""

from __future__ import annotations

import zlib

from simulator.checks.truth import Knowledge, require
from tidelog_broker.core.raft.log import Log
from tidelog_broker.core.raft.messages import Message, VoteRequest, VoteResponse
from tidelog_broker.model import Configuration, Entry, Voter


class QuorumChecks(Knowledge):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[int, tuple[int, int]] = {}
        """Of the metadata log, by index: term and fingerprint of what was committed."""
        self._last_applied = 0
        self._voters: tuple[Voter, ...] = ()
        self._terms: dict[int, Voter] = {}
        """Who led the quorum, by term."""
        self._votes: dict[tuple[Voter, int], Voter] = {}
        """By voter and term: who was told that it has the vote."""

    def controls(self, voter: Voter, term: int, log: Log) -> None:
        """A voter won the election of a term."""
        self.controllers[voter.broker_id] = None
        first = self._terms.setdefault(term, voter)
        require(first == voter, "I1", f"{first} and {voter} lead the quorum in term {term}")
        self.mark("M Raft elected")
        last = self._last_applied
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

    def applied(self, broker: int, entry: Entry) -> None:
        """A broker applies an entry that it believes to be committed."""
        fingerprint = (entry.term, zlib.crc32(entry.payload))
        known = self._entries.setdefault(entry.index, fingerprint)
        require(
            known == fingerprint,
            "I1",
            f"broker {broker} applies another entry {entry.index} of term {entry.term}; it was of {known[0]}",
        )
        self._last_applied = max(self._last_applied, entry.index)

    def configured(self, configuration: Configuration) -> None:
        """An entry says who votes."""
        before, self._voters = self._voters, configuration.voters
        if len(before) > 1 or len(self._voters) > 1:
            self.mark("M1 voters changed")
        known = {voter.broker_id: voter.directory_id for voter in before}
        if any(known.get(one.broker_id, one.directory_id) != one.directory_id for one in self._voters):
            require(False, "M2", f"the disk of a voter is changed in one step: {before} {self._voters}")
        gone = [one for one in before if one not in self._voters]
        if any(self.brokers[one.broker_id].directory_id not in (b"", one.directory_id) for one in gone):
            self.mark("M2 a voter's lost disk leaves")

    def said(self, me: Voter, last_index: int, message: Message) -> None:
        """A voter says something; a vote counts from here on, whatever becomes of it."""
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
        if choice != me:
            self.mark("M Raft voted")
            self.voter(me.broker_id)
