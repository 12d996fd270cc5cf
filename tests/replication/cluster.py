"""Three replicas of one partition over logs in memory, a network that is no good, and a dumb controller.

One seed is one run: `Cluster(seed).storm(steps)` has messages delayed, lost, and in some
seeds repeated and reordered, connections broken, brokers killed with what they had not
flushed, images late, leaders fenced while they do not know it. After each step `check`
compares everything with what was ever committed. `calm` then ends the faults, and all
must come to rest with equal logs.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from replication.whole_logs import Record, WholeLog
from tidelog_broker.core.replication import effects as fx
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.membership import Placement, ReplicaBroker
from tidelog_broker.core.replication.messages import Durable, Position, Refused
from tidelog_broker.core.replication.times import ReplicationTimes

BROKERS = (1, 2, 3)
MIN_INSYNC = 2
TIMES = ReplicationTimes(
    replica_lag_max_ms=400,
    peer_silence_max_ms=60,
    expand_gap_max_bytes=3,
    expand_hold_max_ms=20,
    expand_pause_ms=60,
    proposal_repeat_ms=60,
)
SILENCE_MS = 120
"""A follower that hears nothing for so long connects again."""
READ_MAX = 3
"""Records in one message."""


@dataclass(frozen=True)
class Image:
    """What the controller decided, whole."""

    version: int
    isr: tuple[int, ...]
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    incarnations: dict[int, bytes]
    fenced: frozenset[int]

    def placement(self) -> Placement:
        brokers = {b: ReplicaBroker(self.incarnations[b], b not in self.fenced) for b in BROKERS}
        return Placement(BROKERS, self.isr, self.partition_epoch, MIN_INSYNC, brokers)


@dataclass
class Envelope:
    source: int
    target: int
    source_run: bytes
    target_run: bytes
    connection: int
    message: Any


@dataclass
class Node:
    broker: int
    log: WholeLog = field(default_factory=WholeLog)
    run: bytes = b""
    up: bool = True
    images: deque[Image] = field(default_factory=deque)
    """On their way to it, in order."""
    image: Image | None = None
    role: LeaderPartition | FollowerPartition | None = None
    high_watermark: int = 0
    saved_high_watermark: int = 0
    saved_start: int = 0
    work: deque[Any] = field(default_factory=deque)
    """What its log is to do, in order."""
    connection: int = 0
    heard_at: int = 0
    waits_until: int | None = None
    proposed: dict[tuple[int, ...], None] = field(default_factory=dict)
    """Members by proposals of its leadership that may have taken effect by now."""
    waiting_since: int | None = None
    """Since when its high watermark waits for somebody who is no member."""
    disk_lost: bool = False


class Violation(AssertionError):
    """A promise is broken."""


class Cluster:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fsync = self.rng.random() < 0.75
        self.unordered = self.rng.random() < 0.4
        """The network repeats and reorders."""
        self.loss = self.rng.choice((0.0, 0.02, 0.1))
        self.now = 1000
        self.value = 0
        self.crashes = self.rng.choice((0.1, 0.5, 1))
        """How often brokers crash and connections break."""
        self.runs = 0
        self.connections = 0
        self.calm_now = False
        self.cut: set[frozenset[int]] = set()
        """Pairs of brokers that cannot reach each other; 0 is the controller."""
        self.nodes = {broker: Node(broker) for broker in BROKERS}
        self.network: list[Envelope] = []
        self.answered_run = b""
        self.late: deque[Envelope] = deque(maxlen=40)
        """Messages that may come again, much later."""
        self.proposals: list[tuple[int, fx.Propose]] = []
        self.committed: dict[int, Record] = {}
        self.committed_end = 0
        self.leaders: dict[int, int] = {}
        self.elected_with: dict[int, int] = {}
        """What was committed when an epoch's leader was elected."""
        self.marks: dict[str, int] = {}
        for node in self.nodes.values():
            self._new_run(node)
        self.truth = Image(1, BROKERS, None, 0, 0, {b: n.run for b, n in self.nodes.items()}, frozenset())
        self._publish()
        self._elect()

    def mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1

    # --- the controller

    def _change(self, **fields: Any) -> None:
        before = self.truth
        values = {**before.__dict__, **fields, "version": before.version + 1}
        if (values["isr"], values["leader"], values["leader_epoch"]) != (
            before.isr,
            before.leader,
            before.leader_epoch,
        ):
            values["partition_epoch"] += 1
        self.truth = Image(**values)
        self._publish()

    def _publish(self) -> None:
        for node in self.nodes.values():
            if node.up:
                node.images.append(self.truth)

    def _elect(self) -> None:
        alive = [b for b in self.truth.isr if b not in self.truth.fenced]
        if self.truth.leader is None and alive:
            self.elected_with[self.truth.leader_epoch + 1] = self.committed_end
            self._change(leader=self.rng.choice(alive), leader_epoch=self.truth.leader_epoch + 1)
            self.mark("elected")

    def _fence(self, broker: int) -> None:
        """R6: out of leadership and ISR, but for the last member, which is awaited."""
        isr = tuple(b for b in self.truth.isr if b != broker) or (broker,)
        leader = None if self.truth.leader == broker else self.truth.leader
        self._change(isr=isr, leader=leader, fenced=self.truth.fenced | {broker})
        self._elect()

    def _decide(self, proposal: fx.Propose, sender: int) -> None:
        truth = self.truth
        isr = tuple(member.broker for member in proposal.isr)
        seen = (proposal.leader_epoch, proposal.partition_epoch)
        if truth.leader != sender or seen != (truth.leader_epoch, truth.partition_epoch):
            self.mark("proposal refused")
            return
        allowed = (
            all(truth.incarnations[m.broker] == m.incarnation for m in proposal.isr)
            and not any(b in truth.fenced for b in isr if b not in truth.isr)
            and sender in isr
        )
        # One that names somebody who may not join takes the partition epoch forward all the same.
        isr = isr if allowed else truth.isr
        self._change(isr=isr)
        if isr == truth.isr:
            self.truth = Image(**{**self.truth.__dict__, "partition_epoch": truth.partition_epoch + 1})
            self._republish()
        self.mark("ISR changed" if allowed else "proposal ineligible")

    def _republish(self) -> None:
        for node in self.nodes.values():
            if node.images and node.images[-1].version == self.truth.version:
                node.images[-1] = self.truth

    # --- brokers

    def _new_run(self, node: Node) -> None:
        self.runs += 1
        node.run = b"%d" % self.runs
        node.up = True
        node.role = node.image = node.waits_until = node.waiting_since = None
        node.images.clear()
        node.work.clear()

    def crash(self, node: Node) -> None:
        self.mark("crashed")
        self._remember(node)
        node.up = False
        node.role = None
        node.work.clear()
        node.images.clear()
        if self.fsync:
            node.log.crash(self.rng)
        else:
            node.log.all_durable()
        if self.rng.random() < 0.3 and self.truth.isr != (node.broker,):
            node.disk_lost = True
        node.high_watermark = max(
            node.log.start_offset, min(node.saved_high_watermark, node.log.durable_offset)
        )

    def restart(self, node: Node) -> None:
        """R10: a new run takes its leadership away; with another disk, its place in the ISR too."""
        self._new_run(node)
        leader = None if self.truth.leader == node.broker else self.truth.leader
        isr = self.truth.isr
        if node.disk_lost and isr != (node.broker,):
            self.mark("disk lost")
            node.log, node.high_watermark, node.saved_high_watermark = WholeLog(), 0, 0
            isr = tuple(broker for broker in isr if broker != node.broker)
        node.disk_lost = False
        self._change(
            isr=isr,
            incarnations={**self.truth.incarnations, node.broker: node.run},
            leader=leader,
            fenced=self.truth.fenced - {node.broker},
        )
        self._elect()

    def _remember(self, node: Node) -> None:
        if node.role is not None:
            node.high_watermark = node.role.high_watermark

    def see_image(self, node: Node) -> None:
        image = node.images.popleft()
        # Nobody acts on an image that does not show its own run yet (R10).
        if image.incarnations[node.broker] != node.run:
            return
        before, node.image = node.image, image
        if before is None or before.leader_epoch != image.leader_epoch or before.leader != image.leader:
            self._remember(node)
            node.work.clear()
            node.proposed.clear()
            node.role = node.waiting_since = None
            if image.leader == node.broker:
                self._lead(node, image)
            elif image.leader is not None:
                node.role = FollowerPartition(
                    node.broker,
                    image.leader,
                    image.leader_epoch,
                    node.log,
                    fsync=self.fsync,
                    high_watermark=node.high_watermark,
                )
                self._connect(node)
        elif isinstance(node.role, LeaderPartition):
            if image.partition_epoch > before.partition_epoch:
                node.proposed.clear()
            self._perform(node, node.role.placed(image.placement(), self.now))

    def _lead(self, node: Node, image: Image) -> None:
        self.mark("led")
        if self.leaders.setdefault(image.leader_epoch, node.broker) != node.broker:
            raise Violation("two leaders in an epoch")
        if node.log.end_offset < self.elected_with[image.leader_epoch]:
            raise Violation(f"the leader of {image.leader_epoch} lacks committed records: {node.log}")
        role = LeaderPartition(
            node.broker,
            image.leader_epoch,
            node.log,
            fsync=self.fsync,
            high_watermark=node.high_watermark,
            placement=image.placement(),
            now_ms=self.now,
            times=TIMES,
        )
        node.role = role
        self._perform(node, role.begin(self.now))

    def _connect(self, node: Node) -> None:
        role = node.role
        assert isinstance(role, FollowerPartition)
        self.connections += 1
        node.connection, node.heard_at, node.waits_until = self.connections, self.now, None
        role.lost()
        self._lost_at(self.nodes[role.leader], node.broker, refused=False)
        if self._reaches(node.broker, role.leader) and self.nodes[role.leader].up:
            self._perform(node, role.begin())

    def _lost_at(self, leader: Node, broker: int, *, refused: bool) -> None:
        if leader.up and isinstance(leader.role, LeaderPartition):
            self._perform(leader, leader.role.disconnected(broker, refused, self.now))

    def _reaches(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.cut

    # --- performing

    def _perform(self, node: Node, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case fx.Answer(broker, message):
                    self._send(node, broker, message)
                case fx.SendBatches(broker, offset, end):
                    leader = node.role
                    assert isinstance(leader, LeaderPartition)
                    end = min(end, offset + self.rng.randint(1, READ_MAX))
                    data: Any = node.log.read(offset, end)
                    self._send(node, broker, leader.batches(offset, data, end))
                case fx.Propose():
                    self.mark("proposed")
                    node.proposed[tuple(member.broker for member in effect.isr)] = None
                    if self._reaches(node.broker, 0) and self.rng.random() >= self.loss:
                        self.proposals.append((node.broker, effect))
                case fx.Committed(high_watermark):
                    self._committed(node, high_watermark)
                case fx.SendPosition(position):
                    assert isinstance(node.role, FollowerPartition)
                    self._send(node, node.role.leader, position)
                case fx.SendDurable(durable):
                    assert isinstance(node.role, FollowerPartition)
                    self._send(node, node.role.leader, durable)
                case fx.Wait(ms):
                    node.waits_until = self.now + ms
                case fx.Quarantine(reason):
                    raise Violation(f"{node.log} quarantined: {reason}")
                case fx.FlushHistory():
                    node.log.begin_sync()
                case _:
                    node.work.append(effect)

    def _work(self, node: Node) -> None:
        """Does the next thing with the log."""
        effect, role = node.work.popleft(), node.role
        match effect:
            case fx.Append(data, unclean):
                assert isinstance(role, FollowerPartition)
                records: Any = data
                node.log.append(records, unclean)
                self._perform(node, role.appended())
            case fx.Truncate(offset):
                assert isinstance(role, FollowerPartition)
                self.mark("truncated")
                node.log.truncate(offset)
                self._perform(node, role.truncated())
            case fx.Restart(offset, epoch_before):
                assert isinstance(role, FollowerPartition)
                self.mark("restarted")
                node.log.restart_at(offset, epoch_before)
                node.saved_start = max(node.saved_start, offset)
                self._perform(node, role.restarted())
            case fx.AdvanceStart(offset):
                node.log.advance_start(offset)
                node.saved_start = node.log.start_offset
                if isinstance(role, FollowerPartition):
                    self._perform(node, role.start_saved())
                elif role is not None:
                    self._perform(node, role.start_moved(self.now))
            case other:
                raise AssertionError(other)

    def _committed(self, node: Node, high_watermark: int) -> None:
        self.mark("committed")
        first = max(node.log.start_offset, min(self.committed_end, high_watermark))
        for offset in range(first, high_watermark):
            self.committed[offset] = node.log.at(offset)
        self.committed_end = max(self.committed_end, high_watermark)
        assert node.image is not None
        sure = [b for b in node.image.isr if all(b in isr for isr in node.proposed)]
        if len(sure) < MIN_INSYNC:
            raise Violation(f"{node.role} commits with {sure} as the ISR; proposed: {node.proposed}")

    # --- the network

    def _send(self, node: Node, target: int, message: Any) -> None:
        if isinstance(node.role, LeaderPartition):
            # To the run that is answered, not to whichever run there is by now (R2).
            follower, run = self.nodes[target], node.role.followers[target].incarnation
            if isinstance(message, Refused) or run is None:
                run = self.answered_run
        else:
            follower, run = node, self.nodes[target].run
        envelope = Envelope(node.broker, target, node.run, run, follower.connection, message)
        if self._reaches(node.broker, target) and self.rng.random() >= self.loss:
            self.network.append(envelope)

    def _deliver(self) -> None:
        if self.unordered and not self.calm_now:
            if self.late and self.rng.random() < 0.2:
                self._arrive(self.rng.choice(self._ghosts() or list(self.late)))
                return
            at = self.rng.randrange(min(len(self.network), 6))
            if self.rng.random() < 0.2:
                self.late.append(self.network[at])
        else:
            # In order for each pair, in any order otherwise.
            first: dict[tuple[int, int], int] = {}
            for number, one in enumerate(self.network):
                first.setdefault((one.source, one.target), number)
            at = self.rng.choice(list(first.values()))
        self._arrive(self.network.pop(at))

    def _ghosts(self) -> list[Envelope]:
        """Late messages of runs and epochs that are over."""
        epoch = self.truth.leader_epoch
        return [
            one
            for one in self.late
            if one.source_run != self.nodes[one.source].run or one.message.leader_epoch != epoch
        ]

    def _arrive(self, envelope: Envelope) -> None:
        source, target = self.nodes[envelope.source], self.nodes[envelope.target]
        if (
            not target.up
            or target.run != envelope.target_run
            or not self._reaches(source.broker, target.broker)
        ):
            return
        message, role = envelope.message, target.role
        to_leader = isinstance(message, Position | Durable)
        follower = source if to_leader else target
        if not self.unordered and follower.connection != envelope.connection:
            return
        if to_leader:
            if isinstance(role, LeaderPartition):
                self.answered_run = envelope.source_run
                taken = role.position if isinstance(message, Position) else role.durable
                self._perform(target, taken(source.broker, envelope.source_run, message, self.now))
        elif isinstance(role, FollowerPartition):
            target.heard_at = self.now
            self._perform(target, role.received(message))

    # --- steps

    def storm(self, steps: int) -> None:
        rng = self.rng
        actions = {
            self._step_network: 40,
            self._step_work: 25,
            self._step_flush: 18,
            self._step_append: 10,
            self._step_time: 14,
            self._step_image: 14,
            self._step_controller: 8,
            self._step_crash: 0.5 * self.crashes,
            self._step_restart: 2,
            self._step_cut: 0.5 * self.crashes,
            self._step_heal: 1,
            self._step_fence: 0.4 * self.crashes,
            self._step_save: 1,
            self._step_retention: 0.3,
        }
        chosen = rng.choices(list(actions), list(actions.values()), k=steps)
        for step in chosen:
            step()
            self.check()

    def _some(self) -> Node:
        return self.nodes[self.rng.choice(BROKERS)]

    def _step_network(self) -> None:
        if self.network:
            self._deliver()

    def _step_work(self) -> None:
        node = self._some()
        if node.up and node.work:
            self._work(node)

    def _step_flush(self) -> None:
        node = self._some()
        if not node.up:
            return
        if node.log.syncing is None:
            node.log.begin_sync()
            return
        node.log.end_sync()
        self._flushed(node)

    def _flushed(self, node: Node) -> None:
        if isinstance(node.role, LeaderPartition):
            self._perform(node, node.role.flushed(self.now))
        elif node.role is not None:
            self._perform(node, node.role.flushed())

    def _step_append(self) -> None:
        leading = [n for n in self.nodes.values() if n.up and isinstance(n.role, LeaderPartition)]
        if not leading:
            return
        node = self.rng.choice(leading)
        role = node.role
        assert isinstance(role, LeaderPartition)
        if node.log.end_offset - role.high_watermark > 8:
            return
        for _ in range(self.rng.randint(1, 3)):
            self.value += 1
            node.log.append([(role.leader_epoch, self.value)])
        self._perform(node, role.appended(self.now))

    def _step_time(self) -> None:
        self.now += self.rng.randint(1, 15)
        for node in self.nodes.values():
            if not node.up:
                continue
            if isinstance(node.role, LeaderPartition):
                if node.role.needs_ticks:
                    self._perform(node, node.role.tick(self.now))
            elif node.role is not None:
                if node.waits_until is not None and node.waits_until <= self.now:
                    node.waits_until = None
                    self._perform(node, node.role.waited())
                if self.now - node.heard_at > SILENCE_MS and not node.work:
                    self._connect(node)

    def _step_image(self) -> None:
        node = self._some()
        if node.up and node.images and self._reaches(node.broker, 0):
            self.see_image(node)

    def _step_controller(self) -> None:
        if self.proposals:
            sender, proposal = self.proposals.pop(self.rng.randrange(len(self.proposals)))
            self._decide(proposal, sender)
        else:
            # Whoever is up and reachable is heard again.
            for node in self.nodes.values():
                if node.up and node.broker in self.truth.fenced and self._reaches(node.broker, 0):
                    self._change(fenced=self.truth.fenced - {node.broker})
            self._elect()

    def _step_crash(self) -> None:
        node = self._some()
        if node.up:
            self.crash(node)
            for other in self.nodes.values():
                self._lost_at(other, node.broker, refused=self.rng.random() < 0.5)

    def _step_restart(self) -> None:
        node = self._some()
        if not node.up:
            self.restart(node)

    def _step_cut(self) -> None:
        self.cut.add(frozenset(self.rng.sample((0, *BROKERS), 2)))

    def _step_heal(self) -> None:
        self.cut.clear()

    def _step_fence(self) -> None:
        self._fence(self.rng.choice(BROKERS))

    def _step_save(self) -> None:
        node = self._some()
        if node.up and node.role is not None:
            node.saved_high_watermark = min(node.role.high_watermark, node.log.durable_offset)

    def _step_retention(self) -> None:
        node = self._some()
        role = node.role
        if node.up and isinstance(role, LeaderPartition) and not node.work:
            offset = self.rng.randint(node.log.start_offset, role.high_watermark)
            node.log.advance_start(offset)
            node.saved_start = node.log.start_offset
            self.mark("retention")
            self._perform(node, role.start_moved(self.now))

    # --- what must be true

    def check(self) -> None:
        for node in self.nodes.values():
            self._check_node(node)

    def _check_node(self, node: Node) -> None:
        log = node.log
        role = node.role
        if node.broker in self.truth.isr:
            end = log.durable_offset if self.fsync else log.end_offset
            if end < self.committed_end:
                raise Violation(f"member {node.broker} holds {end} of {self.committed_end} committed: {log}")
            for offset in range(max(log.start_offset, self.committed_end - 12), self.committed_end):
                if log.at(offset) != self.committed[offset]:
                    raise Violation(f"member {node.broker} has another record at {offset}: {log}")
        if isinstance(role, LeaderPartition) and node.up:
            self._check_hold(node, role)
        if role is not None:
            if role.high_watermark > self.committed_end:
                raise Violation(f"{role} is ahead of all that was committed ({self.committed_end})")
            if not log.start_offset <= role.high_watermark <= log.end_offset and not node.work:
                raise Violation(f"{role} is outside of its log")
            for offset in range(
                max(log.start_offset, role.high_watermark - 6), min(role.high_watermark, log.end_offset)
            ):
                if log.at(offset) != self.committed[offset]:
                    raise Violation(f"{role} shows another record at {offset} than was committed")

    def _check_hold(self, node: Node, leader: LeaderPartition) -> None:
        """R4: for somebody who is no member the high watermark waits only so long."""
        assert node.image is not None
        members = {broker for isr in (node.image.isr, *node.proposed) for broker in isr}
        ends = [leader.followers[broker].durable for broker in members if broker != node.broker]
        own = leader.log.durable_offset if self.fsync else leader.log.end_offset
        sure = [b for b in node.image.isr if all(b in isr for isr in node.proposed)]
        waits = (
            leader.high_watermark < min([own, *ends])
            and len(sure) >= MIN_INSYNC
            and leader.log.durable_epoch == leader.leader_epoch
        )
        if not waits:
            node.waiting_since = None
        elif node.waiting_since is None:
            node.waiting_since = self.now
        elif self.now - node.waiting_since > TIMES.expand_hold_max_ms + 30:
            raise Violation(f"{leader} waits since {node.waiting_since} for somebody who is no member")
        else:
            self.mark("held")

    def check_logs(self) -> None:
        """I5: log matching, and every committed record that any log still has."""
        logs = [node.log for node in self.nodes.values()]
        for log in logs:
            for other in logs:
                first = max(log.start_offset, other.start_offset)
                last = min(log.end_offset, other.end_offset)
                same = [log.at(at)[0] == other.at(at)[0] for at in range(first, last)]
                if True in same:
                    up_to = first + len(same) - same[::-1].index(True)
                    if log.read(first, up_to) != other.read(first, up_to):
                        raise Violation(f"{log} and {other} do not match")

    def calm(self) -> None:
        """No more faults: everything comes to rest, and agrees."""
        self.check_logs()
        self.calm_now = True
        self.loss = 0.0
        self.cut.clear()
        for node in self.nodes.values():
            if not node.up:
                self.restart(node)
        for _ in range(600):
            for _ in range(12):
                for node in self.nodes.values():
                    while node.up and node.images:
                        self.see_image(node)
                    while node.work:
                        self._work(node)
                    node.log.begin_sync()
                    node.log.end_sync()
                    self._flushed(node)
                self._step_network()
                self._step_controller()
                self.check()
            self._step_time()
            if self._settled():
                self.check_logs()
                return
        raise Violation(f"no rest: {self.truth} {[n.role for n in self.nodes.values()]}")

    def _settled(self) -> bool:
        roles = [node.role for node in self.nodes.values()]
        leader = next((role for role in roles if isinstance(role, LeaderPartition)), None)
        if leader is None or len(leader.placement.isr) != len(BROKERS) or self.network or self.proposals:
            return False
        ends = {node.log.end_offset for node in self.nodes.values()}
        watermarks = {role.high_watermark for role in roles if role is not None}
        starts = {node.log.start_offset for node in self.nodes.values()}
        return (
            ends == watermarks == {leader.high_watermark}
            and len(starts) == 1
            and leader.start_acknowledged == leader.log.start_offset
            and leader.may_answer_latest
            and not leader.needs_ticks
        )


def run(seed: int, steps: int) -> Cluster:
    """One whole run; a violation says which seed it was."""
    cluster = Cluster(seed)
    try:
        cluster.storm(steps)
        cluster.calm()
    except Violation as violation:
        violation.add_note(f"seed {seed}, fsync {cluster.fsync}, unordered {cluster.unordered}")
        raise
    return cluster
