"""Checks of committed records: every leader and every member of the ISR has them (I3, I6–I8, I11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.checks.logs import LogChecks
from simulator.checks.truth import Led, Setup, require
from simulator.watch.batches import batches_of
from tidelog.model import Durability
from tidelog.records import BatchHeader
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.storage.directory.checkpoint import _unpack

if TYPE_CHECKING:
    from simulator.node import Key, Replica
    from tidelog_broker.core.metadata.image import StreamImage


STARTS: Final = ("log-start-offsets", "log-start-offsets.copy")
"""The checkpoint files with the log start offsets."""

STALLED_US_MAX: Final = 4_000_000
"""How long an append may wait for its commit without a disturbance."""


class CommitChecks(LogChecks):
    """Checks leaders, high watermarks, members of the ISR, and log start offsets."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._stalls: dict[Key, tuple[int, int]] = {}
        """Partitions with uncommitted records: their high watermark, and since when it has not moved."""
        self._durabilities: dict[bytes, bool] = {}
        """By stream: whether it is `fsync`."""

    def leader_began(self, replica: Replica) -> None:
        truth, role, node = self.truth(replica.key), replica.role, replica.node
        assert role is not None
        led = truth.leaders.setdefault(role.leader_epoch, Led(node.id, node.run))
        require(
            led == Led(node.id, node.run),
            "I3",
            f"{replica.name}: two leaders in epoch {role.leader_epoch}: {led} and {Led(node.id, node.run)}",
        )
        copy = self.copy(replica)
        if truth.kept_from:
            # The deleted records may be among those that were lost.
            truth.deleted_in.clear()
        if truth.returning:
            truth.returned(copy.mirror)
        deleted = truth.deleted_before(role.leader_epoch)
        require(
            replica.log.start_offset >= deleted,
            "R11",
            f"{replica.name}: broker {node.id} leads in epoch {role.leader_epoch}, and its log begins at "
            f"{replica.log.start_offset}; clients were told that all below {deleted} is deleted",
        )
        copy.led_from, copy.fsync = role.high_watermark, replica.fsync
        if truth.unclean_begins and role.leader_epoch >= truth.unclean_begins:
            if not self.disks_are_lost and self._is_fsync(replica.key):
                end = truth.flushed_end
                there = copy.mirror.end >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end)
                require(
                    there or end < copy.mirror.start_offset,
                    "R17",
                    f"{replica.name}: broker {node.id} leads after an unclean election, and its log ends at "
                    f"{copy.mirror.end}; all records below {end} were committed while the stream was fsync",
                )
            truth.given_up(copy.mirror)
            copy.excused = False
        end = truth.committed_before(role.leader_epoch)
        require(
            copy.mirror.end >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end),
            "I8",
            f"{replica.name}: broker {node.id} leads in epoch {role.leader_epoch} without all committed "
            f"records: its log ends at {copy.mirror.end} or differs below {end}, where the committed "
            "records end",
        )

    def reached(self, replica: Replica, high_watermark: int) -> None:
        """The high watermark of a replica, perhaps a new one."""
        copy = self.copy(replica)
        if replica.leads and high_watermark != copy.high_watermark:
            self._minimum_stays(replica)
            self._committed(replica, high_watermark)
            if high_watermark >= replica.role.epoch_start:  # type: ignore[union-attr]
                self.truth(replica.key).returning = False

    def _minimum_stays(self, replica: Replica) -> None:
        """R3: a leader commits only with a minimum of members that it does not propose to remove.

        It may propose a removal, or get another ISR, in the same turn in which it commits.
        """
        require(
            self.copy(replica).spare >= 0 or _spare(replica) >= 0,
            "R3",
            f"{replica.name}: broker {replica.node.id} commits, and its ISR {list(replica.placed.isr)} "
            f"without the members that it proposes to remove is {-_spare(replica)} below the minimum",
        )

    def _committed(self, replica: Replica, high_watermark: int) -> None:
        truth, copy = self.truth(replica.key), self.copy(replica)
        require(
            high_watermark > copy.high_watermark or not replica.leads,
            "I7",
            f"{replica.name}: the high watermark of the leader, broker {replica.node.id}, went back from "
            f"{copy.high_watermark} to {high_watermark}",
        )
        copy.high_watermark = high_watermark
        if replica.fsync and copy.fsync and high_watermark > copy.led_from and self._is_fsync(replica.key):
            if truth.switched and high_watermark > truth.flushed:
                self.mark("R17 committed by flushes again")
            truth.flushed = max(truth.flushed, high_watermark)
        if high_watermark > truth.committed.end:
            truth.committed.links += copy.mirror.between(truth.committed.end, high_watermark)
            require(
                truth.committed.end == high_watermark,
                "I8",
                f"{replica.name}: the high watermark {high_watermark} is inside a batch",
            )
            assert replica.role is not None
            truth.committed_in[replica.role.leader_epoch] = high_watermark
            self.members(replica.key)
            if high_watermark > replica.role.epoch_start:  # type: ignore[union-attr]
                require(
                    replica.log.durable_epoch == replica.role.leader_epoch,
                    "R5",
                    f"{replica.name}: broker {replica.node.id} commits records of epoch "
                    f"{replica.role.leader_epoch}, and the start of this epoch is not on its disk",
                )
        chain = truth.committed.chain_at(high_watermark)
        require(
            chain == copy.mirror.chain_at(high_watermark),
            "I8",
            f"{replica.name}: the log of broker {replica.node.id} below its high watermark {high_watermark} "
            f"differs from the committed records",
        )

    def _is_fsync(self, key: Key) -> bool:
        stream = self.image.streams.find(key[0])
        return stream is not None and stream.config.durability is Durability.FSYNC

    def stream_set(self, stream: StreamImage) -> None:
        """R17: notes from when and until when committed records are flushed on all disks."""
        self.retention_set(stream)
        fsync = stream.config.durability is Durability.FSYNC
        before = self._durabilities.setdefault(stream.id, fsync)
        if fsync == before:
            return
        self._durabilities[stream.id] = fsync
        self.mark(f"R17 {'fsync' if fsync else 'page-cache'} begins")
        for number in range(len(stream.partitions)):
            truth = self.truth((stream.id, number))
            if not fsync:
                truth.flushed = 0
            truth.switched = True

    def members(self, key: Key) -> None:
        """I6: every broker that may be elected has all committed records, on its disk."""
        partition, stream = self.image.partition(*key), self.image.streams.find(key[0])
        if partition is None or stream is None:
            return
        truth = self.truth(key)
        if truth.returning:
            # The ISR is still that of the image that was recovered (M2a).
            return
        if truth.unclean_begins:
            # The committed records are those that the first leader after the unclean election has (R6).
            return
        end = truth.committed.end
        for member in (*partition.isr, *partition.eligible):
            copy, node = self.copies.get((member, key)), self.brokers.get(member)
            known = self.image.brokers.get(member)
            if node is None or known is None or known.directory_id != node.directory_id:
                continue
            if copy is None or copy.left:
                require(
                    end == 0,
                    "I6",
                    f"broker {member} may lead {stream.name}/{key[1]} and has no log; all records below "
                    f"{end} are committed",
                )
                continue
            if copy.excused and known.incarnation != node.incarnation:
                continue
            fsync = stream.config.durability is Durability.FSYNC
            if not fsync and not node.running:
                continue
            replica = node.replicas.get(key)
            has = copy.durable if replica is None else replica.log.durable_offset
            flushed = truth.flushed_end
            if not fsync:
                has = copy.mirror.end
            elif has >= flushed and flushed < end:
                # Records that were committed before they were flushed (R17) are in the log, if none was lost.
                if not node.running:
                    continue
                has = copy.mirror.end
            require(
                copy.excused or (has >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end)),
                "I6",
                f"broker {member} may lead {stream.name}/{key[1]} (ISR {list(partition.isr)}, eligible "
                f"{list(partition.eligible)}) without all committed records: it has those below {has}, and "
                f"those below {end} are committed",
            )
            begins = copy.start_offset if replica is None else replica.log.start_offset
            deleted = truth.deleted_before(partition.leader_epoch + 1)
            require(
                copy.excused or begins >= deleted,
                "R11",
                f"broker {member} may lead {stream.name}/{key[1]}, and its log begins at {begins}; clients "
                f"were told that all below {deleted} is deleted",
            )

    def stalled(self) -> None:
        """Appended records must be committed soon, if all replicas are undisturbed and the network is
        whole."""
        for key in self.truths:
            placed, stream = self.image.partition(*key), self.image.streams.find(key[0])
            if placed is None or stream is None or placed.leader is None or self.disks_are_lost:
                self._stalls.pop(key, None)
                continue
            replica = self.brokers[placed.leader].replicas.get(key)
            waits = (
                replica is not None
                and replica.leads
                and replica.high_watermark < replica.log.end_offset
                and len(placed.isr) >= stream.config.min_insync_effective
                and self.surroundings.is_whole()
                and all(self.surroundings.is_undisturbed(member) for member in placed.replicas)
            )
            if replica is None or not waits:
                self._stalls.pop(key, None)
                continue
            since = self._stalls.get(key)
            if since is None or since[0] != replica.high_watermark:
                self._stalls[key] = (replica.high_watermark, self.now_us())
                continue
            require(
                self.now_us() - since[1] < STALLED_US_MAX,
                "liveness",
                f"{replica.name}: {replica.role} has committed nothing for {STALLED_US_MAX // 1_000_000} s, "
                f"although its replicas and the network are undisturbed",
            )

    def touched(self, replica: Replica) -> None:
        """The state of a replica changed."""
        copy, partition = self.copy(replica), replica.partition
        require(
            replica.leads or not (partition.queued or partition.uncommitted),
            "R7",
            f"{replica.name}: broker {replica.node.id} does not lead and still has {partition.queued} "
            f"appends that wait to be written, and {partition.uncommitted} that wait for their commit",
        )
        if not replica.leads:
            # During a truncation the log is shorter before the role knows it.
            reached = min(replica.high_watermark, replica.log.end_offset)
            copy.high_watermark = max(copy.high_watermark, reached)
        start = replica.log.start_offset
        require(
            start >= copy.start_offset,
            "I7",
            f"{replica.name}: the log start offset of broker {replica.node.id} went back from "
            f"{copy.start_offset} to {start}",
        )
        if start > copy.start_offset:
            self._start_is_saved(replica, start)
            self.mark("R11 start moved")
            self.start_moved(replica, start)
        copy.start_offset, copy.fsync, copy.spare = start, replica.fsync, _spare(replica)

    @staticmethod
    def _start_is_saved(replica: Replica, start: int) -> None:
        """The log start offset moves only after both files on the disk have it (R11)."""
        node = replica.node
        assert node.broker is not None
        for name in STARTS:
            kept = node.disk.content_kept(f"{node.broker._store.checkpoints._folder}/{name}")
            saved = None if kept is None else _unpack(kept, STARTS[0])
            require(
                saved is not None and saved.get(replica.key, (0,))[0] >= start,
                "R11",
                f"{replica.name} on broker {node.id} begins at {start}; the file {name} on its "
                f"disk has {saved}",
            )

    # --- messages

    def settled(self, broker: int, key: Key, leader_epoch: int) -> None:
        """A leader tells the controller that all its records are committed, and that it takes no more (N5).

        It takes records from NATS to the end.
        """
        replica = self.brokers[broker].replicas.get(key)
        if replica is None or not replica.leads or replica.partition.leader_epoch != leader_epoch:
            return
        self.mark("N5 settled")
        require(
            replica.partition.leaving
            and (replica.high_watermark >= replica.log.end_offset or _ends_with_recorded(replica)),
            "N5",
            f"{replica.name}: broker {broker} says that it has settled; its log ends at "
            f"{replica.log.end_offset}, its high watermark is {replica.high_watermark}, and it "
            f"{'takes no more appends' if replica.partition.leaving else 'still takes appends'}",
        )

    def sent(self, replica: Replica, leader_epoch: int, headers: list[BatchHeader]) -> None:
        """R2: only the leader of an epoch sends batches in it. R5: it sends batches of its own epoch only
        when the start of the epoch is on its disk."""
        require(
            replica.leads and replica.partition.leader_epoch == leader_epoch,
            "R2",
            f"{replica.name}: broker {replica.node.id} sends batches as the leader of epoch {leader_epoch}; "
            f"its role is {replica.role}",
        )
        if any(header.leader_epoch == leader_epoch for header in headers):
            require(
                replica.log.durable_epoch == leader_epoch,
                "R5",
                f"{replica.name}: broker {replica.node.id} sends batches of its epoch {leader_epoch}, and "
                "the start of this epoch is not on its disk",
            )

    def told_leader(self, replica: Replica, start_offset: int) -> None:
        """A follower tells its leader its log start offset, which is on its disk (R11)."""
        copy = self.copy(replica)
        copy.start_saved = max(copy.start_saved, start_offset)


def _spare(replica: Replica) -> int:
    """How many members of the ISR, without those that the leader proposes to remove, are there beyond the
    minimum; 0: the replica does not lead."""
    role = replica.role
    if not isinstance(role, LeaderPartition):
        return 0
    staying = set(role.placement.isr).difference(role.state.proposals.leaving)
    return len(staying) - role.placement.min_insync_effective


def _ends_with_recorded(replica: Replica) -> bool:
    """Whether all records behind the high watermark came from NATS: only those have subjects."""
    return all(
        "subject" in batch.columns.schema.names and not batch.columns.column("subject").null_count
        for batch in batches_of(replica, replica.key, replica.high_watermark)
    )
