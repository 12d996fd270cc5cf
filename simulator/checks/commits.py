"""Checks of what is promised: who leads or is in sync has it, who asks gets it (I3, I6–I8, I11, I12)."""

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
"""Among the checkpoints."""

STALLED_US_MAX: Final = 4_000_000
"""How long an append may wait for its commit while nothing is amiss."""


class CommitChecks(LogChecks):
    """See the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._stalls: dict[Key, tuple[int, int]] = {}
        """Partitions that have something to commit: their high watermark, and since when."""
        self._durabilities: dict[bytes, bool] = {}
        """By stream: whether it is `fsync`."""

    def leader_began(self, replica: Replica) -> None:
        truth, role, node = self.truth(replica.key), replica.role, replica.node
        assert role is not None
        led = truth.leaders.setdefault(role.leader_epoch, Led(node.id, node.run))
        require(
            led == Led(node.id, node.run),
            "I3",
            f"{replica.name}: {led} and {Led(node.id, node.run)} lead in epoch {role.leader_epoch}",
        )
        copy = self.copy(replica)
        if truth.kept_from:
            # What was deleted may have been deleted of records that are gone.
            truth.deleted_in.clear()
        if truth.returning:
            truth.returned(copy.mirror)
        deleted = truth.deleted_before(role.leader_epoch)
        require(
            replica.log.start_offset >= deleted,
            "R11",
            f"{replica.name}: broker {node.id} leads in epoch {role.leader_epoch} from "
            f"{replica.log.start_offset} on; what is below {deleted} was said to be deleted",
        )
        copy.led_from, copy.fsync = role.high_watermark, replica.fsync
        if truth.unclean_begins and role.leader_epoch >= truth.unclean_begins:
            if not self.disks_are_lost and self._is_fsync(replica.key):
                end = truth.flushed_end
                there = copy.mirror.end >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end)
                require(
                    there or end < copy.mirror.start_offset,
                    "R17",
                    f"{replica.name}: broker {node.id} leads after an unclean election with "
                    f"{copy.mirror.end}; up to {end} it was committed since the stream is fsync",
                )
            truth.given_up(copy.mirror)
            copy.excused = False
        end = truth.committed_before(role.leader_epoch)
        require(
            copy.mirror.end >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end),
            "I8",
            f"{replica.name}: broker {node.id} leads in epoch {role.leader_epoch} without all that was "
            f"committed before: it has {copy.mirror.end}, committed was {end}",
        )

    def reached(self, replica: Replica, high_watermark: int) -> None:
        """Its high watermark is this now."""
        copy = self.copy(replica)
        if replica.leads and high_watermark != copy.high_watermark:
            self._minimum_stays(replica)
            self._committed(replica, high_watermark)
            if high_watermark >= replica.role.epoch_start:  # type: ignore[union-attr]
                self.truth(replica.key).returning = False

    def _minimum_stays(self, replica: Replica) -> None:
        """R3: a leader commits only with a minimum of members that it does not want to remove.

        It may propose that, or learn of another ISR, in the turn in which it commits.
        """
        require(
            self.copy(replica).spare >= 0 or _spare(replica) >= 0,
            "R3",
            f"{replica.name}: broker {replica.node.id} commits, and of its ISR {list(replica.placed.isr)} "
            f"{-_spare(replica)} too few are to stay",
        )

    def _committed(self, replica: Replica, high_watermark: int) -> None:
        truth, copy = self.truth(replica.key), self.copy(replica)
        require(
            high_watermark > copy.high_watermark or not replica.leads,
            "I7",
            f"{replica.name}: the high watermark of broker {replica.node.id} went from "
            f"{copy.high_watermark} to {high_watermark}",
        )
        copy.high_watermark = high_watermark
        if replica.fsync and copy.fsync and high_watermark > copy.led_from and self._is_fsync(replica.key):
            if truth.switched and high_watermark > truth.flushed:
                self.mark("R17 committed by flushes again")
            truth.flushed = max(truth.flushed, high_watermark)
        if high_watermark > truth.committed.end:
            truth.committed.links += copy.mirror.between(truth.committed.end, high_watermark)
            require(truth.committed.end == high_watermark, "I8", f"{replica.name}: half a batch is committed")
            assert replica.role is not None
            truth.committed_in[replica.role.leader_epoch] = high_watermark
            self.members(replica.key)
            if high_watermark > replica.role.epoch_start:  # type: ignore[union-attr]
                require(
                    replica.log.durable_epoch == replica.role.leader_epoch,
                    "R5",
                    f"{replica.name}: broker {replica.node.id} commits records of epoch "
                    f"{replica.role.leader_epoch}; where it began is not on the disk",
                )
        chain = truth.committed.chain_at(high_watermark)
        require(
            chain == copy.mirror.chain_at(high_watermark),
            "I8",
            f"{replica.name}: broker {replica.node.id} commits another log up to {high_watermark}",
        )

    def _is_fsync(self, key: Key) -> bool:
        stream = self.image.streams.find(key[0])
        return stream is not None and stream.config.durability is Durability.FSYNC

    def stream_set(self, stream: StreamImage) -> None:
        """R17: from when on what is committed is flushed on all disks, and until when."""
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
        """I6: everybody who may be elected has everything that was ever committed, on disk."""
        partition, stream = self.image.partition(*key), self.image.streams.find(key[0])
        if partition is None or stream is None:
            return
        truth = self.truth(key)
        if truth.returning:
            # The ISR is that of the image that was recovered, as it stands there (M2a).
            return
        if truth.unclean_begins:
            # What is left is what the first leader since the unclean election holds (R6).
            return
        end = truth.committed.end
        for member in (*partition.isr, *partition.eligible):
            copy, node = self.copies.get((member, key)), self.brokers.get(member)
            known = self.image.brokers.get(member)
            if node is None or known is None or known.directory_id != node.directory_id:
                continue
            if copy is None or copy.left:
                require(
                    end == 0, "I6", f"broker {member} is in sync for {stream.name}/{key[1]} and has nothing"
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
                # What counted before it was flushed (R17) lies in the log, if nothing was lost since.
                if not node.running:
                    continue
                has = copy.mirror.end
            require(
                copy.excused or (has >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end)),
                "I6",
                f"broker {member} is in sync for {stream.name}/{key[1]} (isr {list(partition.isr)} eligible "
                f"{list(partition.eligible)}) and has {has} of {end} committed",
            )
            begins = copy.start_offset if replica is None else replica.log.start_offset
            deleted = truth.deleted_before(partition.leader_epoch + 1)
            require(
                copy.excused or begins >= deleted,
                "R11",
                f"broker {member} may lead {stream.name}/{key[1]} and begins at {begins}; "
                f"what is below {deleted} was said to be deleted",
            )

    def stalled(self) -> None:
        """What was appended is committed soon, where nothing is between those who have to have it."""
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
                f"{replica.name}: {replica.role} commits nothing, though nothing is between its replicas",
            )

    def touched(self, replica: Replica) -> None:
        """Something happened to a role."""
        copy, partition = self.copy(replica), replica.partition
        require(
            replica.leads or not (partition.queued or partition.uncommitted),
            "R7",
            f"{replica.name}: broker {replica.node.id} does not lead; {partition.queued} appends wait to "
            f"be written there, {partition.uncommitted} for their commit",
        )
        if not replica.leads:
            # A log that is being cut is shorter before its role knows of it.
            reached = min(replica.high_watermark, replica.log.end_offset)
            copy.high_watermark = max(copy.high_watermark, reached)
        start = replica.log.start_offset
        require(
            start >= copy.start_offset,
            "I7",
            f"{replica.name}: the log start offset of broker {replica.node.id} went from "
            f"{copy.start_offset} to {start}",
        )
        if start > copy.start_offset:
            self._start_is_saved(replica, start)
            self.mark("R11 start moved")
            self.start_moved(replica, start)
        copy.start_offset, copy.fsync, copy.spare = start, replica.fsync, _spare(replica)

    @staticmethod
    def _start_is_saved(replica: Replica, start: int) -> None:
        """A log begins where both files of its disk say, and no earlier than they say so (R11)."""
        node = replica.node
        assert node.broker is not None
        for name in STARTS:
            kept = node.disk.content_kept(f"{node.broker._store.checkpoints._folder}/{name}")
            saved = None if kept is None else _unpack(kept, STARTS[0])
            require(
                saved is not None and saved.get(replica.key, (0,))[0] >= start,
                "R11",
                f"{replica.name} on {node.id} begins at {start}; {name} on its disk knows of {saved}",
            )

    # --- what is told

    def settled(self, broker: int, key: Key, leader_epoch: int) -> None:
        """A leader tells the controller that all it has is committed, and that it takes no more (N5).

        What comes from NATS is taken to the end.
        """
        replica = self.brokers[broker].replicas.get(key)
        if replica is None or not replica.leads or replica.partition.leader_epoch != leader_epoch:
            return
        self.mark("N5 settled")
        require(
            replica.partition.leaving
            and (replica.high_watermark >= replica.log.end_offset or _ends_with_recorded(replica)),
            "N5",
            f"{replica.name}: broker {broker} says that it has settled, and "
            f"{'has' if replica.partition.leaving else 'takes appends behind'} {replica.log.end_offset}; "
            f"{replica.high_watermark} is committed",
        )

    def sent(self, replica: Replica, leader_epoch: int, headers: list[BatchHeader]) -> None:
        """R2: only the leader of an epoch gives its batches away. R5: those of its own epoch only once it is
        on the disk where that began."""
        require(
            replica.leads and replica.partition.leader_epoch == leader_epoch,
            "R2",
            f"{replica.name}: broker {replica.node.id} sends batches as the leader of epoch {leader_epoch}, "
            f"and is {replica.role}",
        )
        if any(header.leader_epoch == leader_epoch for header in headers):
            require(
                replica.log.durable_epoch == leader_epoch,
                "R5",
                f"{replica.name}: batches of epoch {leader_epoch} are sent by broker {replica.node.id}; "
                "where it began is not on the disk",
            )

    def told_leader(self, replica: Replica, start_offset: int) -> None:
        """A follower tells its leader of its log start offset: it is on its disk (R11)."""
        copy = self.copy(replica)
        copy.start_saved = max(copy.start_saved, start_offset)


def _spare(replica: Replica) -> int:
    """So many more members of the ISR than the minimum are there that their leader did not propose to remove;
    0: it does not lead."""
    role = replica.role
    if not isinstance(role, LeaderPartition):
        return 0
    staying = set(role.placement.isr).difference(role.state.proposals.leaving)
    return len(staying) - role.placement.min_insync_effective


def _ends_with_recorded(replica: Replica) -> bool:
    """Whether all records behind the high watermark came from NATS, which alone names subjects."""
    return all(
        "subject" in batch.columns.schema.names and not batch.columns.column("subject").null_count
        for batch in batches_of(replica, replica.key, replica.high_watermark)
    )
