"""A simulated broker's part in the metadata quorum: performs Raft, and applies what is committed.

The rules are `core.raft` and `core.metadata`; the disk is the real metadata log over a simulated one. What
a leader of the quorum does besides is in `controlling`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from simulator.checks import Checks
from simulator.controlling import Answer, Controlling
from simulator.old_network import Network
from simulator.requests import Request
from simulator.world import MS, World
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import decode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image, encode_image
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.ready import Ready
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.model import Entry, EntryType, Snapshot, Voter
from tidelog_broker.storage.raft_log import RaftLog

TICK_US: Final = 20 * MS
TIMES: Final = RaftTimes()
FAST_TICK_US: Final = 4 * MS
FAST_TIMES: Final = RaftTimes(election=6, heartbeat=2, refused=1)
"""For runs in which elections are to collide."""
SNAPSHOT_ENTRIES: Final = 40
Applied = Callable[[ClusterImage, ClusterImage], None]


class Quorum:
    """See the module."""

    def __init__(
        self,
        world: World,
        network: Network,
        quorums: dict[int, Quorum],
        me: Voter,
        log: RaftLog,
        rng: random.Random,
        *,
        voters_wanted: int,
        times: RaftTimes,
        disk_delay: Callable[[], int],
        alive: Callable[[], bool],
        applied: Applied,
        checks: Checks,
    ) -> None:
        """`quorums`: of the brokers that run, by id; messages go to whoever is there when they arrive."""
        self._world = world
        self._network = network
        self._quorums = quorums
        self.me = me
        self.log = log
        self._rng = rng
        self._disk_delay = disk_delay
        self._alive = alive
        self._on_applied = applied
        self._checks = checks
        self.image, self.applied = _replayed(log)
        self.node = RaftNode(me, log, log.hard_state, log.configurations, times=times, rng=rng)
        self.controlling = Controlling(self, world, checks, voters_wanted)
        self._led = (False, 0, 0)
        """Whether it led when last looked at, in which term, and what was committed then."""
        self._snapshot_due = self.applied + SNAPSHOT_ENTRIES
        self._told = ""
        self.pump()

    def __repr__(self) -> str:
        return f"<Quorum {self.node!r} applied={self.applied}>"

    # --- time and messages

    def tick(self) -> None:
        self.node.tick()
        self.pump()
        self.controlling.control()

    def receive(self, message: Message) -> None:
        self.node.step(message)
        self.pump()

    def refused(self, broker: int) -> None:
        """A machine refused a connection."""
        for voter in (*self.node.configuration.voters, *self.node.configuration.learners):
            if voter.broker_id == broker:
                self.node.refused(voter)
                self.node.disconnected(voter)
        self.pump()

    def ask(self, request: Request, answer: Answer) -> None:
        """Somebody asks the controller; `answer` may never be called."""
        self.controlling.ask(request, answer)

    def _send(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            self._checks.said(self.me, self.node.log.last_index, message)
            target = message.target.broker_id

            def deliver(message: Message = message, target: int = target) -> None:
                quorum = self._quorums.get(target)
                if quorum is not None:
                    quorum.receive(message)

            if target in self._network.hosts:
                self._network.send(self.me.broker_id, target, deliver)

    def pump(self) -> None:
        """Performs what the node wants, until it waits for the disk."""
        while (ready := self.node.ready()) is not None:
            self._look()
            self._send(ready.messages)
            self.controlling.answered(ready)
            if ready.persist is not None:
                self._write(ready)
                # What is committed may be applied while the disk writes.
                self._apply(ready.committed)
                break
            self._apply(ready.committed)
            self._send(self.node.advance(ready))
        self._tell_role()

    def _look(self) -> None:
        node = self.node
        led, term, commit = self._led
        if led and node.leads and node.term == term:
            self._checks.committed_entries(self.me, term, commit, node.log)
        self._led = (node.leads, node.term, node.log.commit)

    def _write(self, ready: Ready) -> None:
        persist = ready.persist
        assert persist is not None
        early = self._rng.random() < 0.5
        if early:
            self.log.save(*persist)

        def written() -> None:
            if not self._alive():
                return
            if not early:
                self.log.save(*persist)
            if persist.snapshot is not None:
                self._restore(persist.snapshot)
            self._send(self.node.advance(ready))
            self.pump()

        self._world.after(self._disk_delay(), written)

    # --- entries

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        if not entries:
            return
        before = self.image
        for entry in entries:
            assert entry.index == self.applied + 1, (entry.index, self.applied)
            self._checks.applied(self.me.broker_id, entry)
            self.applied = entry.index
            if entry.type is EntryType.COMMAND:
                command = decode_command(entry.payload)
                self.image = apply(self.image, command, entry.index)
                self._checks.imaged(self.me.broker_id, self.image, command)
            self.controlling.applied(entry)
        if self.image is not before:
            self._on_applied(before, self.image)
        if self.applied >= self._snapshot_due and self.applied <= self.log.durable_index:
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        if self.log.snapshot_index >= self.applied or self.log.term(self.applied) is None:
            return
        configuration = self.node.configuration_at(self.applied)
        try:
            self.log.save_snapshot(configuration, self.applied, encode_image(self.image))
        except OSError:
            return  # A full disk; nothing is lost, and the next entry tries again.
        self.node.compacted(self.applied)
        self._snapshot_due = self.applied + SNAPSHOT_ENTRIES

    def _restore(self, snapshot: Snapshot) -> None:
        before, self.image = self.image, decode_image(snapshot.data)
        self.applied = snapshot.index
        self._world.tell(f"broker {self.me.broker_id} got the image of entry {snapshot.index}")
        self._checks.imaged(self.me.broker_id, self.image)
        self._on_applied(before, self.image)

    def _tell_role(self) -> None:
        role = f"{self.node.role_name} term={self.node.term}"
        if role != self._told:
            self._told = role
            self._world.tell(f"broker {self.me.broker_id} is {role}")
            if role.startswith("candidate"):
                self._checks.candidate(self.me.broker_id)
        self.controlling.role_changed(self._tip)

    def _tip(self) -> ClusterImage:
        image, index = self.image, self.applied + 1
        while index <= self.node.log.last_index:
            for entry in self.node.log.entries(index, self.node.log.last_index + 1, 1 << 20):
                if entry.type is EntryType.COMMAND:
                    image = apply(image, decode_command(entry.payload), entry.index)
                index = entry.index + 1
        return image


def _replayed(log: RaftLog) -> tuple[ClusterImage, int]:
    """The image of the newest snapshot; what is behind it is applied once it is known to be committed."""
    snapshot = log.snapshot
    if snapshot is None:
        return ClusterImage(), 0
    return decode_image(snapshot.data), snapshot.index
