"""Checks of what is promised: who leads or is in sync has it, who asks gets it (I3, I6–I8, I11, I12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks.logs import LogChecks
from simulator.checks.truth import Led, require
from tidelog.errors import (
    DiskFull,
    NotEnoughReplicas,
    OutOfOrderSequence,
    TidelogError,
    UnexpectedOffset,
    UnknownProducer,
)
from tidelog.model import Durability
from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import Diverged, Refused, StartOver
from tidelog_broker.storage.log import Appended, AppendItem

if TYPE_CHECKING:
    from simulator.replica import Key, Replica


class CommitChecks(LogChecks):
    """See the module."""

    def leader_began(self, replica: Replica) -> None:
        truth, role, broker = self.truth(replica.key), replica.role, replica.broker
        assert role is not None
        led = truth.leaders.setdefault(role.leader_epoch, Led(broker.id, broker.run))
        require(
            led == Led(broker.id, broker.run),
            "I3",
            f"{replica.name}: {led} and {Led(broker.id, broker.run)} lead in epoch {role.leader_epoch}",
        )
        copy = self.copy(replica)
        end = truth.committed_before(role.leader_epoch)
        require(
            copy.mirror.end >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end),
            "I8",
            f"{replica.name}: broker {broker.id} leads in epoch {role.leader_epoch} without all that was "
            f"committed before: it has {copy.mirror.end}, committed was {end}",
        )

    def committed(self, replica: Replica, high_watermark: int) -> None:
        truth, copy = self.truth(replica.key), self.copy(replica)
        require(
            high_watermark > copy.high_watermark or not replica.leads,
            "I7",
            f"{replica.name}: the high watermark of broker {replica.broker.id} went from "
            f"{copy.high_watermark} to {high_watermark}",
        )
        copy.high_watermark = high_watermark
        if high_watermark > truth.committed.end:
            truth.committed.links += copy.mirror.between(truth.committed.end, high_watermark)
            require(truth.committed.end == high_watermark, "I8", f"{replica.name}: half a batch is committed")
            assert replica.role is not None
            truth.committed_in[replica.role.leader_epoch] = high_watermark
            self.members(replica.key)
        chain = truth.committed.chain_at(high_watermark)
        require(
            chain == copy.mirror.chain_at(high_watermark),
            "I8",
            f"{replica.name}: broker {replica.broker.id} commits another log up to {high_watermark}",
        )

    def members(self, key: Key) -> None:
        """I6: everybody who may be elected has everything that was ever committed, on disk."""
        partition, stream = self.image.partition(*key), self.image.streams.find(key[0])
        if partition is None or stream is None:
            return
        truth = self.truth(key)
        end = truth.committed.end
        for member in (*partition.isr, *partition.eligible):
            copy, broker = self.copies.get((member, key)), self.brokers.get(member)
            known = self.image.brokers.get(member)
            if broker is None or known is None or known.directory_id != broker.directory_id:
                continue
            if copy is None:
                require(
                    end == 0, "I6", f"broker {member} is in sync for {stream.name}/{key[1]} and has nothing"
                )
                continue
            if copy.excused and known.incarnation != getattr(broker, "incarnation", b""):
                continue
            fsync = stream.config.durability is Durability.FSYNC
            if not fsync and not broker.running:
                continue
            replica = broker.replicas.get(key) if broker.running else None
            has = copy.durable if replica is None else replica.log.durable_offset
            if not fsync:
                has = copy.mirror.end
            require(
                copy.excused or (has >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end)),
                "I6",
                f"broker {member} is in sync for {stream.name}/{key[1]} (isr {list(partition.isr)} eligible "
                f"{list(partition.eligible)}) and has {has} of {end} committed",
            )

    def touched(self, replica: Replica) -> None:
        """Something happened to a role."""
        copy = self.copy(replica)
        if not replica.leads:
            copy.high_watermark = max(copy.high_watermark, replica.high_watermark)
        start = replica.log.start_offset
        require(
            start >= copy.start_offset,
            "I7",
            f"{replica.name}: the log start offset of broker {replica.broker.id} went from "
            f"{copy.start_offset} to {start}",
        )
        copy.start_offset = start

    def acknowledged(self, replica: Replica, appended: Appended) -> None:
        """A producer is told that its batch is committed."""
        truth = self.truth(replica.key)
        require(
            appended.last_offset < truth.committed.end,
            "I8",
            f"{replica.name}: {appended.last_offset} is acknowledged, committed is {truth.committed.end}",
        )
        truth.acknowledged = max(truth.acknowledged, appended.last_offset + 1)

    def settled(self, replica: Replica) -> None:
        """A leader has settled what it has (N5)."""
        require(
            not replica.unanswered and replica.leaving,
            "N5",
            f"{replica.name}: broker {replica.broker.id} would leave {replica.unanswered} producers in doubt",
        )
        self.mark("N5 settled")

    def refused(self, replica: Replica, item: AppendItem, error: TidelogError) -> None:
        """A producer is told that nothing was written (I11)."""
        require(
            replica.log.end_offset == self.copy(replica).mirror.end,
            "I11",
            f"{replica.name}: refused ({error.code}), and broker {replica.broker.id} has more than before",
        )
        match error:
            case NotEnoughReplicas():
                self.mark("R7 too few in sync")
            case UnknownProducer() | OutOfOrderSequence():
                self.mark(f"R8 {error.code}")
            case UnexpectedOffset():
                self.mark("R9 refused")
                require(
                    not self.holds(replica, item),
                    "R9",
                    f"{replica.name}: a repeat of what met offset {item.expected_offset} is refused",
                )
            case DiskFull():
                self.mark("4.4 refused, the disk is full")
            case _:
                pass

    def read(self, replica: Replica, offset: int, chain: int | None) -> None:
        """A reader goes on at its position, not told of anything; `chain` is of what it read so far (I12)."""
        here = self.copy(replica).mirror.chain_at(offset)
        if chain is None or here is None:
            return
        self.mark("R13 goes on")
        require(
            here == chain,
            "I12",
            f"{replica.name}: a reader goes on at {offset} of broker {replica.broker.id}, where the log "
            "below is another one than it read, and is not told",
        )

    def told_latest(self, replica: Replica, offset: int, floor: int) -> None:
        """R15: whoever asks a leader for the end is told of all that was acknowledged before it asked."""
        placed = self.image.partition(*replica.key)
        if placed is None or replica.role is None or placed.leader_epoch != replica.role.leader_epoch:
            return  # Deposed, and does not know it yet (docs/replication.md, Not covered).
        self.mark("R15 latest")
        require(
            offset >= min(floor, self.truth(replica.key).committed.end),
            "I12",
            f"{replica.name}: {replica.broker.id} says that the end is {offset}; {floor} is acknowledged",
        )

    def effect(self, replica: Replica, effect: object) -> None:
        """Marks which rules were exercised."""
        match effect:
            case do.Answer(_, Refused(refusal, _)):
                self.mark(f"R2 {refusal.value}")
            case do.Answer(_, StartOver()):
                self.mark("R1 start over")
            case do.Answer(_, Diverged()):
                self.mark("R1 diverged")
            case do.Committed():
                self.mark("R3 committed")
            case do.Propose():
                self.mark("R4 proposed")
            case do.AdvanceStart():
                self.mark("R11 start moved")
            case do.Say() | do.Ask():
                words = effect.durable if isinstance(effect, do.Say) else effect.position
                copy = self.copy(replica)
                copy.start_saved = max(copy.start_saved, words.start_offset)
            case do.SendBatches(_, _, end) if isinstance(replica.role, LeaderPartition):
                role = replica.role
                require(
                    end <= role.epoch_start or replica.log.durable_epoch == role.leader_epoch,
                    "R5",
                    f"{replica.name}: batches of epoch {role.leader_epoch} are sent; where it began is not "
                    "on the disk",
                )
            case do.Quarantine():
                self.mark("R1 quarantine")
            case do.BeginUnclean():
                self.mark("R5 unclean epoch")
            case do.FlushHistory():
                self.mark("R5 history flushed")
            case _:
                pass
