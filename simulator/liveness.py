"""The end of a run: the faults end, the cluster must recover without help, and the whole history is checked.

Some repairs need an administrator: an unclean election when no eligible replica is left, and a folder of
another partition in the place of a replica. This module performs them after a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from simulator.checks import require
from simulator.clients.population import Population
from simulator.cluster import Cluster
from simulator.faults.schedule import Faults
from simulator.kernel.wire import Conditions
from simulator.nats.deployment import NatsDeployment
from simulator.node import Key
from simulator.steps import Steps
from simulator.watch.batches import LAST_READER, read_all
from simulator.watch.mirror import Mirror
from simulator.world import SECOND
from tidelog.history import Anomaly, History, Report, check
from tidelog_broker.core.metadata.commands import ChangePartitions
from tidelog_broker.core.metadata.decisions.elections import elect_unclean
from tidelog_broker.core.metadata.decisions.reassignment import reassign
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.storage.log.partition_log import PartitionLog

LIVE_SECONDS_MAX: Final = 90
"""The simulated time from the last fault until the cluster must be healthy."""
OPERATOR_SECONDS: Final = 20
"""The simulated time from the last fault until an administrator repairs what the cluster cannot."""


class Liveness:
    """The last part of a run."""

    def __init__(
        self, cluster: Cluster, steps: Steps, clients: Population, nats: NatsDeployment, faults: Faults
    ) -> None:
        self._cluster = cluster
        self._steps = steps
        self._clients = clients
        self._nats = nats
        self._faults = faults

    def settle(self) -> None:
        self._cluster.world.tell("calm from here on")
        self._cluster.network.mend()
        if self._cluster.full is not None:
            self._cluster.full.disk.fill(None)
            self._cluster.full = None
        self._cluster.network.wire.conditions = Conditions()
        self._faults.clocks.set_right()
        self._clients.stop()
        renewed = self._faults.renewals.producer
        if renewed is not None:
            renewed.stopped = True
        self._nats.settle()
        for broker in self._cluster.nodes.values():
            if broker.running and broker.stop_asked:
                # A broker that was asked to stop is ended and started again.
                self._cluster.crash(broker, power=False)
            self._cluster.start(broker)
        self._cluster.world.after(OPERATOR_SECONDS * SECOND, self._operate)
        self._clients.raise_failures()
        self._steps.until(self._calm, LIVE_SECONDS_MAX, self._unrest)
        self._clients.raise_failures()
        self._cluster.checks.full()

    def _operate(self) -> None:
        """Performs the repairs that need an administrator, every `OPERATOR_SECONDS`.

        One is the unclean election of a partition without any ISR, eligible or last known replica (R6).
        """
        for broker in self._cluster.up():
            self._faults.disks.put_right(broker)
        for key in (*self._cluster.keys, *self._faults.renewals.keys):
            partition = self._cluster.checks.image.partition(*key)
            if partition is None:
                continue
            if partition.leader is not None:
                self._restart_quarantined(key, partition)
                continue
            if partition.isr or partition.eligible or partition.last_known:
                continue
            there = [broker for broker in self._cluster.up() if key in broker.replicas]
            best = max(there, key=lambda broker: broker.replicas[key].log.end_offset, default=None)
            if best is not None:
                self._cluster.checks.mark("R6 elect --unclean")
                self._cluster.decide(partial(_by_force, key=key, broker=best.id))
                continue
            # No log is left: the partition is assigned to another broker, which is elected next time (2c).
            other = next((one for one in self._cluster.up() if one.id not in partition.replicas), None)
            if other is not None:
                self._cluster.checks.mark("2c nothing is left")
                self._cluster.decide(partial(_elsewhere, key=key, broker=other.id))
        self._cluster.world.after(OPERATOR_SECONDS * SECOND, self._operate)

    def _restart_quarantined(self, key: Key, partition: PartitionImage) -> None:
        """Restarts brokers whose replica is quarantined because it contradicts its leader after a forced
        recovery (M2a). The start creates the replica again."""
        for member in partition.replicas:
            node = self._cluster.nodes[member]
            if (
                node.broker is not None
                and key in node.broker.lost
                and self._cluster.checks.truth(key).forgotten
            ):
                self._cluster.checks.mark("M2a quarantine looked at")
                self._cluster.crash(node, power=False)
                node.start()

    def _unrest(self) -> str:
        return "; ".join(self._reasons())

    def _calm(self) -> bool:
        return next(self._reasons(), None) is None

    def _reasons(self) -> Iterator[str]:
        """Yields why the cluster has not recovered yet."""
        image = self._cluster.checks.image
        for key in self._cluster.keys:
            partition = image.partition(*key)
            if partition is None:
                yield f"partition {key[1]} is not in the image"
                continue
            if partition.leader is None:
                yield f"partition {key[1]} has no leader: {partition}"
                continue
            leader = self._cluster.nodes[partition.leader]
            replica = leader.replicas.get(key)
            if not isinstance(replica and replica.role, LeaderPartition):
                yield f"broker {leader.id} does not lead partition {key[1]} yet: {replica}"
                continue
            assert replica is not None
            if partition.reassigning:
                yield f"the reassignment of partition {key[1]} has not ended: {partition}"
            if set(partition.isr) != set(partition.replicas):
                yield f"partition {key[1]} has replicas out of sync: {partition} {replica.role}"
            if replica.high_watermark < replica.log.end_offset:
                yield f"partition {key[1]} has uncommitted records: {replica.role}"
            for member in partition.replicas:
                other = self._cluster.nodes[member].replicas.get(key)
                if other is None or other.log.end_offset != replica.log.end_offset:
                    yield f"broker {member} and its leader have different log ends: {other}, {replica}"
                elif other.log.start_offset != replica.log.start_offset:
                    yield f"broker {member} and its leader have different log starts: {other}, {replica}"
        for (broker, key), copy in self._cluster.checks.copies.items():
            if not copy.left and copy.rotten > copy.start_offset and key in self._cluster.keys:
                yield f"broker {broker} has not repaired a rotten segment of partition {key[1]}"
        yield from self._faults.renewals.unrest()
        for producer in self._clients.producers:
            if not producer.idle:
                yield f"producer {producer.name} still waits for an answer"
        for sink in self._clients.sinks:
            if not sink.idle:
                yield f"job {sink.name} has not committed its last batch"
        yield from self._nats.reasons()
        for reader in self._clients.readers:
            key = self._cluster.keys[reader.place]
            leader_of = self._cluster.leader_of(key)
            if leader_of is not None:
                end = leader_of.replicas[key].high_watermark
                if reader.position.offset < end:
                    yield f"reader {reader.name} has read up to {reader.position.offset} of {end}"

    @staticmethod
    def _same_marks(partition: int, mine: PartitionLog, theirs: PartitionLog) -> None:
        """R1, R5: where two logs overlap, their epoch histories have the same unclean epochs.

        A log without a record of an unclean epoch or a later one may not have the mark: its broker adds the
        mark when it leads (`core.replication.unclean_epochs`). Of several epochs that began at one offset,
        only the latest counts. A log that began empty behind the beginning of an unclean epoch does not have
        the mark either (docs/replication.md, Not covered).
        """
        first = max(mine.start_offset, theirs.start_offset)
        last = min(max((one.epoch for one in log.epochs), default=0) for log in (mine, theirs))
        marks = [
            {one.start_offset: one for one in log.epochs
             if one.unclean and one.start_offset >= first and one.epoch <= last}
            for log in (mine, theirs)
        ]  # fmt: skip
        require(
            marks[0] == marks[1],
            "R1",
            f"partition {partition}: at the end {mine!r} and {theirs!r} have different unclean epochs: "
            f"{marks}",
        )

    def judge(self) -> None:
        """Checks the whole history, and compares the logs of all replicas."""
        self._faults.renewals.judge()
        history = self._clients.history
        for partition, key in enumerate(self._cluster.keys):
            leader = self._cluster.leader_of(key)
            assert leader is not None
            log = leader.replicas[key].log
            read_all(history, leader.replicas[key], key, partition)
            history.last_readers[partition] = log.end_offset
            history.starts[partition] = log.start_offset
            for member in self._cluster.checks.image.partition(*key).replicas:  # type: ignore[union-attr]
                mine: Mirror = self._cluster.checks.copies[member, key].mirror
                theirs: Mirror = self._cluster.checks.copies[leader.id, key].mirror
                require(
                    mine.chain_at(log.end_offset) == theirs.chain_at(log.end_offset),
                    "I5",
                    f"partition {partition}: brokers {member} and {leader.id} have different logs at the end",
                )
                self._same_marks(partition, self._cluster.nodes[member].replicas[key].log, log)
        self._nats.judge()
        report, at_the_end = check(history), check(_last_read(history))
        unclean = {p for p, key in enumerate(self._cluster.keys) if self._cluster.checks.truth(key).kept_from}
        anomalies = {
            anomaly: count
            for anomaly, count in report.anomalies.items()
            if not unclean or not _excused(anomaly, at_the_end)
        }
        require(not anomalies, "I8", _anomalies(anomalies, report))


def _anomalies(found: Mapping[Anomaly, int], report: Report) -> str:
    counts = ", ".join(f"{count} {anomaly}" for anomaly, count in found.items())
    return f"the history has anomalies: {counts}; {'; '.join(report.examples[:3])}"


def _excused(anomaly: Anomaly, at_the_end: Report) -> bool:
    """Whether an unclean election explains an anomaly.

    It reports the records that it loses. Their producers send them again, and readers that had seen them see
    them at another offset. They are no duplicates if the remaining log has them once, and not reordered if no
    record that was sent later stands before them in that log.
    """
    if anomaly in (Anomaly.DUPLICATE, Anomaly.REORDERED):
        return anomaly not in at_the_end.anomalies
    return anomaly in (Anomaly.LOST, Anomaly.WRONG_OFFSET, Anomaly.INCONSISTENT_OFFSET, Anomaly.UNSEEN)


def _last_read(history: History) -> History:
    """The history with only the reads of the last reader."""
    return replace(history, reads=[read for read in history.reads if read.reader == LAST_READER], rewinds={})


def _by_force(image: ClusterImage, *, key: Key, broker: int) -> ChangePartitions:
    return elect_unclean(image, *key, broker)


def _elsewhere(image: ClusterImage, *, key: Key, broker: int) -> ChangePartitions | None:
    return reassign(image, key[0], {key[1]: (broker,)})
