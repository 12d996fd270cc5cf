"""One run: a cluster is made, faults rain on it while clients work (safety), then they end (liveness)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from simulator.broker import CLUSTER_ID, Broker
from simulator.checks import Checks, Violated, require
from simulator.clients import SimProducer, SimReader, read_all
from simulator.mirror import Mirror
from simulator.network import Anywhere, Conditions, Network
from simulator.quorum import Quorum
from simulator.replica import Key
from simulator.swarm import Plan, plan_of
from simulator.world import MS, SECOND, World
from tidelog.history import Anomaly, History, Report, check
from tidelog.model import Durability, StreamSettings
from tidelog_broker.core.metadata import decide
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.elections import elect_unclean
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.times import ReplicationTimes

FULL_CHECK_STEPS: Final = 1_000
BEGIN_SECONDS_MAX: Final = 60
LIVE_SECONDS_MAX: Final = 90
"""After the last fault, of simulated time."""
SAFETY_SECONDS_MAX: Final = 600
OPERATOR_SECONDS: Final = 20
"""How long people wait, in calm, before they mend what the cluster leaves to them."""

TIMES: Final = ReplicationTimes(replica_lag_max_ms=3_000)
"""Shorter than a broker's, so that a run sees it happen."""


@dataclass
class Result:
    """What became of a run."""

    seed: int
    plan: Plan
    events: int = 0
    seconds: float = 0.0
    """Simulated."""
    fingerprint: str = ""
    violation: str = ""
    """Empty: none."""
    marks: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    elections: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violation


class Simulation:
    """See the module."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.network = Network(self.world, plan.network)
        self.checks = Checks()
        self.history = History()
        self.brokers: dict[int, Broker] = {}
        self.rng: random.Random = self.world.rng_of("faults")
        self.keys: list[Key] = []
        self.producers: list[SimProducer] = []
        self.readers: list[SimReader] = []
        self._producer_id = 0
        self._disturbed_us = 0
        """When a cut last began or ended."""
        self._raining = False
        quorums: dict[int, Quorum] = {}
        for number in range(1, plan.brokers + 1):
            broker = Broker(
                self.world,
                self.network,
                self.checks,
                number,
                self.brokers,
                quorums,
                voters_wanted=plan.voters,
                times=TIMES,
            )
            broker.fast_raft = plan.fast_raft
            broker.late_copies = plan.late_copies
            broker.skew_us = self.rng.randint(-plan.skew_us, plan.skew_us)
            if plan.slow_disks:
                broker.disk_us = (500, 20 * MS)
            self.brokers[number] = broker
            self.network.hosts[number] = broker
        self.checks.brokers = self.brokers
        self.checks.is_undisturbed = self._is_undisturbed
        self.checks.disks_are_lost = plan.disk_losses > 0
        self.checks.candidate = lambda broker: self._candidate(self.brokers[broker])

    # --- the whole of it

    def run(self) -> Result:
        result = Result(self.plan.seed, self.plan)
        try:
            self._begin()
            self._safety()
            self._liveness()
            self._judge()
        except Exception as error:
            if not isinstance(error, AssertionError):
                self.world.tell(f"{type(error).__name__}: {error}")
            result.violation = f"{type(error).__name__}: {error}"
            if not isinstance(error, Violated):
                import traceback

                result.violation += "\n" + traceback.format_exc(limit=-6)
        result.events = self.world.events
        result.seconds = self.world.now / SECOND
        result.fingerprint = self.world.fingerprint
        result.marks = dict(sorted(self.checks.marks.items()))
        result.acknowledged = sum(producer.acknowledged for producer in self.producers)
        result.elections = sum(len(truth.leaders) for truth in self.checks.truths.values())
        result.lines = list(self.world.lines)
        return result

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = self.world.now + int(seconds * SECOND)
        looked = 0
        while True:
            if self.world.events >= looked:
                looked = self.world.events + 20
                if condition():
                    return
            require(
                self.world.now < deadline,
                "liveness",
                f"not within {seconds:g} s: {what() if callable(what) else what}",
            )
            self._step()

    def _step(self) -> None:
        require(self.world.step(), "liveness", "nothing is planned any more")
        if self.world.events % FULL_CHECK_STEPS == 0:
            self.checks.full()

    # --- the beginning

    def _begin(self) -> None:
        self.brokers[1].format_cluster()
        for broker in self.brokers.values():
            broker.start()
        calm, self.network.conditions = self.network.conditions, Conditions()
        self._until(lambda: self._all_registered(), BEGIN_SECONDS_MAX, "all brokers are registered")
        for number, stream in enumerate(self.plan.streams):
            settings = StreamSettings(
                partitions=stream.partitions,
                replication_factor=stream.replication_factor,
                min_insync_replicas=min(stream.min_insync, stream.replication_factor),
                durability=Durability.FSYNC if stream.fsync else Durability.PAGE_CACHE,
            )
            stream_id = uuid.UUID(int=self.plan.seed * 10 + number + 1).bytes
            self._decide(
                lambda image, n=number, s=settings, i=stream_id: decide.create_stream(  # type: ignore[misc]
                    image, f"s{n}", s, stream_id=i, created_us=0
                )
            )
            self.keys += [(stream_id, partition) for partition in range(stream.partitions)]
        self._until(lambda: all(self._leader_of(key) for key in self.keys), BEGIN_SECONDS_MAX, "leaders")
        self.network.conditions = calm
        self._clients()

    def _all_registered(self) -> bool:
        image = self.checks.image
        return len(image.brokers) == len(self.brokers) and image.cluster_id == CLUSTER_ID

    def _decide(self, decision: Callable[[ClusterImage], Command | None]) -> bool:
        """Has whoever controls propose something; whether anybody does."""
        for broker in self.brokers.values():
            quorum = broker.quorum
            if broker.running and quorum.controller is not None and quorum.controls:
                command = decision(quorum.controller.tip)
                return command is not None and quorum._propose(quorum.controller, command)
        return False

    def _clients(self) -> None:
        address = 0
        for partition, key in enumerate(self.keys):
            for index in range(self.plan.producers):
                address -= 1
                self.network.hosts[address] = Anywhere()
                self.producers.append(
                    SimProducer(
                        self.world, self.network, self.brokers, self.history, address, key, partition,
                        idempotent=index != 1, pause_us=self.plan.produce_pause_us, acks_all=index != 2,
                        producer_ids=self._new_producer_id,
                    )
                )  # fmt: skip
            for _ in range(self.plan.readers):
                address -= 1
                self.network.hosts[address] = Anywhere()
                self.readers.append(
                    SimReader(
                        self.world, self.network, self.brokers, self.history, address, key, partition,
                        pause_us=40 * MS,
                    )
                )  # fmt: skip

    def _new_producer_id(self) -> int:
        self._producer_id += 1
        return self._producer_id

    # --- faults

    def _safety(self) -> None:
        for rate, fault in (
            (self.plan.kills, lambda: self._crash(power=False)),
            (self.plan.power_losses, lambda: self._crash(power=True)),
            (self.plan.everybody, self._crash_everybody),
            (self.plan.cuts, self._cut),
            (self.plan.disk_losses, self._lose_disk),
            (self.plan.stops, self._stop),
            (self.plan.start_moves, self._move_start),
            (self.plan.minimum_changes, self._change_minimum),
            (self.plan.double_crashes, self._crash_twice),
        ):
            if rate:
                self._rain(rate, fault)
        end = self.world.now + SAFETY_SECONDS_MAX * SECOND
        self._raining = True
        begun = self.world.events
        while self.world.events - begun < self.plan.events and self.world.now < end:
            self._step()
        self._raining = False

    def _rain(self, rate: float, fault: Callable[[], None]) -> None:
        def again() -> None:
            if self._raining:
                fault()
                self.world.after(int(self.rng.expovariate(rate) * SECOND), again)

        self.world.after(int(self.rng.expovariate(rate) * SECOND), again)

    def _up(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.running]

    def _crash(self, *, power: bool) -> None:
        up = self._up()
        leaders = [broker for key in self.keys if (broker := self._leader_of(key)) is not None]
        controllers = [broker for broker in up if broker.quorum.node.leads]
        if self.plan.fast_raft and controllers and self.rng.random() < 0.7:
            self._end(controllers[0], power=power)
        elif leaders and self.rng.random() < 0.5:
            self._end(self.rng.choice(leaders), power=power)
        elif up:
            self._end(self.rng.choice(up), power=power)

    def _crash_twice(self) -> None:
        """Killed, started, and without power before it is through with what it found (2a)."""
        up = self._up()
        if up:
            broker = self.rng.choice(up)
            broker.crash(power=False)
            self._start(broker)
            broker.after(
                self.rng.randint(1 * MS, 800 * MS),
                lambda: self._end(broker, power=True) if self._raining else None,
            )

    def _candidate(self, broker: Broker) -> None:
        """Elections are where votes are given: some voter ends in the middle of it, and is soon back."""
        if self._raining and self.rng.random() < self.plan.election_kills:
            # Rather one who votes than the one who asks.
            victim = self.rng.choice([number for number in sorted(self.brokers) if number != broker.id])

            def strike() -> None:
                if self.brokers[victim].running and self._raining:
                    self.brokers[victim].crash(power=self.rng.random() < 0.5)
                    self.world.after(
                        self.rng.randint(1, self.plan.restart_us), lambda: self._start(self.brokers[victim])
                    )

            self.world.after(self.rng.randint(0, 3 * MS), strike)

    def _is_undisturbed(self, broker_id: int) -> bool:
        """M3: it could be heard all the time, so nobody may say that it could not."""
        broker, network = self.brokers[broker_id], self.network
        calm = not (network.conditions.lost or network.conditions.slow or self.plan.slow_disks)
        since = max(self._disturbed_us, broker.started_us)
        return broker.running and calm and not broker.stopping and self.world.now - since > 5 * SECOND

    def _crash_everybody(self) -> None:
        power = self.rng.random() < 0.5
        self.world.tell(f"everybody {'loses power' if power else 'is killed'}")
        for broker in self._up():
            self._end(broker, power=power)

    def _end(self, broker: Broker, *, power: bool) -> None:
        broker.crash(power=power)
        self.world.after(self.rng.randint(*self.plan.down_us), lambda: self._start(broker))

    def _start(self, broker: Broker) -> None:
        if not broker.running:
            broker.start()

    def _cut(self) -> None:
        everybody = sorted(self.brokers)
        kind = self.rng.random()
        if kind < 0.4:
            one, other = self.rng.sample(everybody, 2)
            pairs = [(one, other)]
        elif kind < 0.8:
            leader = self._leader_of(self.rng.choice(self.keys))
            alone = leader.id if leader is not None else self.rng.choice(everybody)
            pairs = [(alone, other) for other in everybody if other != alone]
        else:
            self.rng.shuffle(everybody)
            half = len(everybody) // 2
            pairs = [(one, other) for one in everybody[:half] for other in everybody[half:]]
        one_way = self.plan.one_way and self.rng.random() < 0.5
        self.world.tell(f"cut {pairs}{' one way' if one_way else ''}")
        self._disturbed_us = self.world.now
        for one, other in pairs:
            self.network.cut(one, other)
            if not one_way:
                self.network.cut(other, one)
        self.world.after(self.rng.randint(*self.plan.cut_us), self._mend)

    def _mend(self) -> None:
        if self.network.cuts:
            self.world.tell("the network is whole again")
            self._disturbed_us = self.world.now
            self.network.mend()

    def _lose_disk(self) -> None:
        """Only while it is not the last straw: the promise is about fewer disks than the ISR has."""
        victims = [broker for broker in self._up() if self._can_spare(broker)]
        if not victims:
            return
        broker = self.rng.choice(victims)
        broker.crash(power=True)
        broker.new_disk()
        self.checks.disk_lost(broker)
        self.world.tell(f"broker {broker.id} has lost its disk")
        self.world.after(self.rng.randint(*self.plan.down_us), lambda: self._start(broker))

    def _can_spare(self, victim: Broker) -> bool:
        """Everybody is there, with everything, and without this disk a majority of the voters still is."""
        controller = next((broker for broker in self._up() if broker.quorum.controls), None)
        if controller is None or len(self._up()) < len(self.brokers):
            return False
        image, configuration = controller.quorum.image, controller.quorum.node.configuration
        for broker in self.brokers.values():
            known = image.brokers.get(broker.id)
            if known is None or known.fenced or known.incarnation != broker.incarnation:
                return False
        disks = {broker.id: broker.directory_id for broker in self.brokers.values()}
        if any(disks[voter.broker_id] != voter.directory_id for voter in configuration.voters):
            return False
        if len(configuration.voters) < self.plan.voters:
            # Two voters are a step on the way to three, and lose with either disk (docs/replication.md).
            return False
        votes = any(voter.broker_id == victim.id for voter in configuration.voters)
        if votes and len(configuration.voters) < 3:
            return False
        for key in self.keys:
            partition, stream = image.partition(*key), image.streams.find(key[0])
            if partition is None or stream is None:
                return False
            if victim.id not in (*partition.isr, *partition.eligible):
                continue
            if set(partition.isr) != set(partition.replicas) or stream.config.min_insync_effective < 2:
                return False
        return True

    def _stop(self) -> None:
        """A rolling restart's step: leadership is handed over before the process ends."""
        up = self._up()
        if not up:
            return
        broker = self.rng.choice(up)
        broker.stopping = True
        self.world.tell(f"broker {broker.id} is asked to stop")
        broker.after(SECOND, lambda: self._end(broker, power=False) if self._raining else None)

    def _move_start(self) -> None:
        key = self.rng.choice(self.keys)
        leader = self._leader_of(key)
        if leader is not None:
            replica = leader.replicas[key]
            if replica.log.start_offset < replica.high_watermark:
                offset = self.rng.randint(replica.log.start_offset, replica.high_watermark)
                self.world.tell(f"{replica.name}: records below {offset} are deleted")
                assert replica.role is not None
                replica._advance_start(replica.role, offset)

    def _change_minimum(self) -> None:
        key = self.rng.choice(self.keys)
        stream = self.checks.image.streams.find(key[0])
        if stream is not None:
            minimum = self.rng.randint(1, stream.config.replication_factor)
            self.world.tell(f"{stream.name}: at least {minimum} in sync from now on")
            self._decide(
                lambda image: decide.alter_stream(
                    image, stream.name, StreamSettings(min_insync_replicas=minimum)
                )
            )

    def _leader_of(self, key: Key) -> Broker | None:
        for broker in self.brokers.values():
            if broker.running:
                replica = broker.replicas.get(key)
                if replica is not None and replica.leads:
                    return broker
        return None

    # --- calm

    def _liveness(self) -> None:
        self.world.tell("calm from here on")
        self.network.mend()
        self.network.conditions = Conditions()
        for producer in self.producers:
            producer.stopped = True
        for broker in self.brokers.values():
            if broker.running and broker.stopping:
                # Whoever wanted to stop does, and comes back.
                broker.crash(power=False)
            self._start(broker)
        self.world.after(OPERATOR_SECONDS * SECOND, self._operate)
        self._until(self._calm, LIVE_SECONDS_MAX, self._unrest)
        self.checks.full()

    def _operate(self) -> None:
        """What needs a person: nobody is left who has everything, and nobody said what he has (R6)."""
        for key in self.keys:
            partition = self.checks.image.partition(*key)
            if partition is None or partition.leader is not None:
                continue
            if partition.isr or partition.eligible or partition.last_known:
                continue
            there = [broker for broker in self._up() if key in broker.replicas]
            best = max(there, key=lambda broker: broker.replicas[key].log.end_offset, default=None)
            if best is not None:
                self.checks.mark("R6 elect --unclean")
                self._decide(lambda image, k=key, b=best.id: elect_unclean(image, *k, b))  # type: ignore[misc]
        self.world.after(OPERATOR_SECONDS * SECOND, self._operate)

    def _unrest(self) -> str:
        return "; ".join(self._reasons())

    def _calm(self) -> bool:
        return next(self._reasons(), None) is None

    def _reasons(self) -> Iterator[str]:
        """Why it is not calm yet."""
        image = self.checks.image
        for key in self.keys:
            partition = image.partition(*key)
            if partition is None:
                yield f"partition {key[1]} is in no image"
                continue
            if partition.leader is None:
                yield f"nobody leads partition {key[1]}: {partition}"
                continue
            leader = self.brokers[partition.leader]
            replica = leader.replicas.get(key)
            if not isinstance(replica and replica.role, LeaderPartition):
                yield f"broker {leader.id} does not lead partition {key[1]} yet: {replica}"
                continue
            assert replica is not None
            if set(partition.isr) != set(partition.replicas):
                yield f"not everybody is in sync: {partition} {replica.role}"
            if replica.high_watermark < replica.log.end_offset:
                yield f"not everything is committed: {replica.role}"
            for member in partition.replicas:
                other = self.brokers[member].replicas.get(key)
                if other is None or other.log.end_offset != replica.log.end_offset:
                    yield f"broker {member} has another end: {other}"
        for producer in self.producers:
            if not producer.idle:
                yield f"producer {producer.name} waits for an answer"
        for reader in self.readers:
            leader_of = self._leader_of(reader._key)
            if leader_of is not None:
                end = leader_of.replicas[reader._key].high_watermark
                if reader.offset < end:
                    yield f"reader {reader.name} is at {reader.offset} of {end}"

    def _judge(self) -> None:
        """The whole history against what a log promises."""
        history = self.history
        for partition, key in enumerate(self.keys):
            leader = self._leader_of(key)
            assert leader is not None
            log = leader.replicas[key].log
            read_all(history, leader, key, partition)
            history.last_readers[partition] = log.end_offset
            history.starts[partition] = log.start_offset
            for member in self.checks.image.partition(*key).replicas:  # type: ignore[union-attr]
                mine: Mirror = self.checks.copies[member, key].mirror
                theirs: Mirror = self.checks.copies[leader.id, key].mirror
                require(
                    mine.chain_at(log.end_offset) == theirs.chain_at(log.end_offset),
                    "I5",
                    f"brokers {member} and {leader.id} end with different logs of partition {partition}",
                )
        report = check(history)
        unclean = {p for p, key in enumerate(self.keys) if self.checks.truth(key).unclean}
        anomalies = {
            anomaly: count
            for anomaly, count in report.anomalies.items()
            if not self._excused(anomaly, unclean)
        }
        require(not anomalies, "I8", f"{anomalies}: {report.examples[:3]}")
        self.report: Report = report

    def _excused(self, anomaly: Anomaly, unclean: set[int]) -> bool:
        """What an unclean election lost, it said; what retention took before anybody read it is not lost."""
        return bool(unclean) and anomaly in (
            Anomaly.LOST,
            Anomaly.WRONG_OFFSET,
            Anomaly.INCONSISTENT_OFFSET,
            Anomaly.UNSEEN,
        )


def simulate(seed: int) -> Result:
    return Simulation(plan_of(seed)).run()
