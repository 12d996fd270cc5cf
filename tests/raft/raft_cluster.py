"""Raft nodes, their disks and the wire between them; everything said and believed is checked.

One thing happens at a time, and who lets it happen decides: a seed (`storm`) or a script
(`scenario`). The checks are I1 and I13 of docs/replication.md, and *persist before you
speak* itself: what goes out is held against the disk of the one who says it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from raft.raft_disk import Disk, MemoryDisk
from tidelog_broker.core.raft.log import Log
from tidelog_broker.core.raft.messages import AppendResponse, Message, VoteRequest, VoteResponse
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.quorum import majority
from tidelog_broker.core.raft.ready import Ready
from tidelog_broker.core.raft.state import RandomSource
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter

TIMES = RaftTimes(election=10, heartbeat=2, refused=3)


def voter(number: int, disk: int = 0) -> Voter:
    return Voter(number, bytes([number, disk]) * 8)


def all_entries(log: Log, first: int, end: int) -> list[Entry]:
    """Those from `first` up to, without, `end`, as far as they are still there."""
    found: list[Entry] = []
    while entries := log.entries(first, end, 1 << 20):
        found += entries
        first = entries[-1].index + 1
    return found


@dataclass
class Machine:
    """A broker with one disk."""

    me: Voter
    disk: Disk
    node: RaftNode | None = None
    """None: it is down."""
    doing: Ready | None = None
    """Being saved."""
    applied_index: int = 0
    commit: int = 0
    """The node's, as far as it was checked."""
    installed: int = 0
    """Images of a leader that took the place of the log."""

    @property
    def up(self) -> RaftNode:
        assert self.node is not None, self.me
        return self.node


@dataclass
class Cluster:
    """Raft nodes that exchange messages through a simulated network."""

    chance: Callable[[Voter], RandomSource]
    """Of a node that starts."""
    new_disk: Callable[[], Disk] = MemoryDisk
    machines: dict[Voter, Machine] = field(default_factory=dict)
    wire: list[Message] = field(default_factory=list)
    """Sent and not delivered, oldest first."""
    cut: set[tuple[Voter, Voter]] = field(default_factory=set)
    """Source and target of connections that lose everything."""
    leaders: dict[int, Voter] = field(default_factory=dict)
    """By term."""
    votes: dict[tuple[Voter, int], Voter] = field(default_factory=dict)
    committed: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Index to term and payload."""
    reads: dict[int, tuple[Voter, int]] = field(default_factory=dict)
    """Token to who was asked, and what was committed then."""
    reads_done: int = 0
    proposed: int = 0

    def format(self, voters: int, learners: int = 0) -> None:
        """A cluster of brokers 1, 2, …, whose first entry says who votes."""
        everybody = [voter(number) for number in range(1, voters + learners + 1)]
        configuration = Configuration(tuple(everybody[:voters]), tuple(everybody[voters:]))
        for me in everybody:
            machine = self.add(me)
            first = Entry(1, 1, EntryType.CONFIGURATION, configuration.encode())
            machine.disk.format(first, HardState(1, None, 1))
            self.start(me)

    def add(self, me: Voter) -> Machine:
        """A machine with an empty disk, down."""
        self.machines[me] = Machine(me, self.new_disk())
        return self.machines[me]

    def start(self, me: Voter) -> None:
        machine = self.machines[me]
        disk = machine.disk
        machine.applied_index = 0 if disk.snapshot is None else disk.snapshot.index
        machine.node = RaftNode(
            me, disk, disk.hard_state, disk.configurations, times=TIMES, rng=self.chance(me)
        )
        machine.commit = machine.node.log.commit

    def crash(self, me: Voter) -> None:
        machine = self.machines[me]
        machine.node = machine.doing = None
        for token in [token for token, (asked, _) in self.reads.items() if asked == me]:
            del self.reads[token]

    @property
    def running(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.node is not None]

    def leader(self) -> RaftNode | None:
        """The one of the latest term."""
        leading = [machine.up for machine in self.running if machine.up.leads]
        return max(leading, key=lambda node: node.term, default=None)

    # --- one thing at a time

    def begin(self, machine: Machine) -> Ready | None:
        """Takes a ready, says what may be said at once, and applies what is committed."""
        ready = machine.up.ready()
        if ready is None:
            return None
        machine.doing = ready
        self._send(machine, ready.messages)
        for entry in ready.committed:
            assert entry.index == machine.applied_index + 1, "applied in order"
            assert machine.disk.term(entry.index) == entry.term, "applied before it is on this disk"
            machine.applied_index = entry.index
            self._is_committed(entry.index, entry.term, entry.payload)
        for read in ready.reads:
            _, floor = self.reads.pop(read.token)
            assert read.index >= floor, "a read that misses what was committed when it was asked"
            self.reads_done += 1
        for token in ready.failed_reads:
            self.reads.pop(token)
        self.check(machine)
        return ready

    def finish(self, machine: Machine) -> None:
        """What is being saved is saved; what waited for it is said."""
        ready = machine.doing
        assert ready is not None
        machine.doing = None
        if ready.persist is not None:
            machine.disk.save(ready.persist)
            if ready.persist.snapshot is not None:
                machine.applied_index = ready.persist.snapshot.index
                machine.installed += 1
        self._send(machine, machine.up.advance(ready))
        self.check(machine)

    def work(self, machine: Machine) -> bool:
        """The next of the two; whether there was anything to do."""
        if machine.doing is None:
            return self.begin(machine) is not None
        self.finish(machine)
        return True

    def deliver(self, at: int, *, keep: bool = False) -> bool:
        """A message on the wire arrives; whether somebody was there to take it."""
        message = self.wire[at] if keep else self.wire.pop(at)
        machine = self.machines.get(message.target)
        if machine is None or machine.node is None or (message.source, message.target) in self.cut:
            return False
        machine.node.step(message)
        self.check(machine)
        return True

    def compact(self, machine: Machine) -> None:
        """An image of everything that was applied takes the place of the entries."""
        index = machine.applied_index
        newest = 0 if machine.disk.snapshot is None else machine.disk.snapshot.index
        if machine.doing is None and newest < index <= machine.disk.last_index:
            machine.disk.compact(index, machine.up.configuration_at(index))
            machine.up.compacted(index)

    def read(self, machine: Machine, token: int) -> None:
        machine.up.read(token)
        self.reads[token] = machine.me, max(self.committed, default=0)

    # --- what must hold

    def _send(self, machine: Machine, messages: tuple[Message, ...]) -> None:
        for message in messages:
            self._check_said(machine, message)
            self.wire.append(message)

    def _check_said(self, machine: Machine, message: Message) -> None:
        disk = machine.disk
        match message:
            case VoteRequest(pre=True) | VoteResponse(pre=True, granted=True):
                return
            case VoteRequest():
                self._voted(message.source, message.term, message.source)
            case VoteResponse(granted=True):
                self._voted(message.source, message.term, message.target)
            case AppendResponse(rejected=False):
                assert disk.last_index >= message.index, f"{message} is not on its disk"
            case _:
                pass
        assert disk.hard_state.term >= message.term, f"{message} names a term that is not on its disk"

    def _voted(self, source: Voter, term: int, candidate: Voter) -> None:
        first = self.votes.setdefault((source, term), candidate)
        assert first == candidate, f"{source} voted twice in term {term}"

    def check(self, machine: Machine) -> None:
        node = machine.up
        assert node.term >= machine.disk.hard_state.term
        assert node.log.commit >= machine.commit, "a commit goes back"
        if node.leads:
            first = self.leaders.setdefault(node.term, node.me)
            assert first == node.me, f"two leaders in term {node.term}"
            if node.log.commit > machine.commit:
                self._check_kept(node)
        for entry in all_entries(node.log, machine.commit + 1, node.log.commit + 1):
            self._is_committed(entry.index, entry.term, entry.payload)
        machine.commit = node.log.commit

    def _is_committed(self, index: int, term: int, payload: bytes) -> None:
        known = self.committed.setdefault(index, (term, payload))
        assert known == (term, payload), f"two histories at {index}"

    def _check_kept(self, node: RaftNode) -> None:
        """What a leader calls committed is of its term, and on the disks of a majority."""
        index = node.log.commit
        assert node.log.term(index) == node.term, f"{node!r} commits an earlier term's entry by counting"
        kept = 0
        for one in node.configuration.voters:
            disk = self.machines[one].disk
            kept += index < disk.first_index or disk.term(index) == node.term
        assert kept >= majority(len(node.configuration.voters)), f"{node!r} commits what {kept} disks have"
