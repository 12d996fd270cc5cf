"""The invariants of docs/replication.md, each checked where a step could break it, and all now and then.

The truth is kept apart from the brokers: what was ever committed, who ever led, which batch stands where.
A check that fails raises `Violated` with the invariant's number and a sentence.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from simulator.mirror import Link, Mirror
from tidelog.errors import NotEnoughReplicas, OutOfOrderSequence, TidelogError, UnknownProducer
from tidelog.model import Durability
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.metadata.snapshot import encode_image
from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import Diverged, Refused, StartOver
from tidelog_broker.model import Entry, Voter
from tidelog_broker.storage.log import Appended

if TYPE_CHECKING:
    from simulator.broker import Broker
    from simulator.replica import Key, Replica


class Violated(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, sentence: str) -> None:
        super().__init__(f"{invariant}: {sentence}")
        self.invariant = invariant


def require(condition: object, invariant: str, sentence: str) -> None:
    if not condition:
        raise Violated(invariant, sentence)


class _Led(NamedTuple):
    broker: int
    run: int


class Truth:
    """What is known of one partition, by nobody in particular."""

    def __init__(self) -> None:
        self.leaders: dict[int, _Led] = {}
        """By leader epoch."""
        self.batches: dict[tuple[int, int], Link] = {}
        """By leader epoch and base offset: what was first seen there."""
        self.committed = Mirror()
        self.acknowledged = 0
        """Behind the last record of which a producer was told that it is committed."""
        self.unclean = 0
        """The newest unclean epoch in which somebody led: what was committed before may be gone."""


class Copy:
    """What is known of one replica, from outside."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.durable = 0
        """Everything below is on the disk, as the broker knew."""
        self.high_watermark = 0
        self.start_offset = 0
        self.start_saved = 0
        """The log start offset that somebody was told of."""
        self.excused = False
        """Its disk is gone, or it is set aside, or known to be suspect: nothing is expected of it."""


class Checks:
    """See the module. The hooks are called by those who perform."""

    def __init__(self) -> None:
        self.marks: Counter[str] = Counter()
        """Which rule was exercised how often."""
        self.truths: dict[Key, Truth] = {}
        self.copies: dict[tuple[int, Key], Copy] = {}
        self.image = ClusterImage()
        """The newest that anybody applied."""
        self._entries: dict[int, tuple[int, int]] = {}
        """Of the metadata log, by index: term and fingerprint of what was committed."""
        self._terms: dict[int, Voter] = {}
        """Who led the quorum, by term."""
        self._images: dict[int, int] = {}
        """By version: a fingerprint of the image."""
        self.brokers: dict[int, Broker] = {}
        self.disks_are_lost = False
        """The run is one in which disks are."""
        self.candidate: Callable[[int], None] = lambda broker: None
        """Somebody asks for votes."""
        self.is_undisturbed: Callable[[int], bool] = lambda broker: False
        """Whether a broker runs, and has for long, and everybody hears it."""

    def truth(self, key: Key) -> Truth:
        return self.truths.setdefault(key, Truth())

    def copy(self, replica: Replica) -> Copy:
        return self.copies.setdefault((replica.broker.id, replica.key), Copy())

    def mark(self, rule: str) -> None:
        self.marks[rule] += 1

    # --- the metadata log

    def controls(self, voter: Voter, term: int) -> None:
        """A voter won the election of a term."""
        first = self._terms.setdefault(term, voter)
        require(first == voter, "I1", f"{first} and {voter} lead the quorum in term {term}")
        self.mark("M controller")

    def applied(self, broker: int, entry: Entry) -> None:
        """A broker applies an entry that it believes to be committed."""
        fingerprint = (entry.term, zlib.crc32(entry.payload))
        known = self._entries.setdefault(entry.index, fingerprint)
        require(
            known == fingerprint,
            "I1",
            f"broker {broker} applies another entry {entry.index} of term {entry.term}; it was of {known[0]}",
        )

    # --- the image

    def imaged(self, broker: Broker, image: ClusterImage) -> None:
        fingerprint = zlib.crc32(encode_image(image))
        known = self._images.setdefault(image.version, fingerprint)
        require(
            known == fingerprint, "I2", f"broker {broker.id} has another image of version {image.version}"
        )
        if image.version <= self.image.version:
            return
        before, self.image = self.image, image
        for _, old, stream in image.streams.changes(before.streams):
            if stream is None:
                continue
            for number, partition in enumerate(stream.partitions):
                was = old.partitions[number] if old is not None and number < len(old.partitions) else None
                self._sound(image, stream, number, partition)
                if was != partition:
                    self._placed(stream, number, was, partition)
        if image.brokers is not before.brokers:
            self._fenced(before, image)
            for stream in image.streams.values():
                for number, partition in enumerate(stream.partitions):
                    self._sound(image, stream, number, partition)

    def _fenced(self, before: ClusterImage, image: ClusterImage) -> None:
        """M3: nobody is fenced who was there all the time and could be heard."""
        for known in image.brokers.values():
            was = before.brokers.get(known.id)
            if known.fenced and was is not None and not was.fenced:
                self.mark("M3 fenced")
                require(
                    not self.is_undisturbed(known.id),
                    "M3",
                    f"broker {known.id} is fenced, though it runs and nothing is between it and the others",
                )

    def _lose(self, stream: StreamImage, number: int, now: PartitionImage) -> None:
        """An unclean election: what the leader holds is the truth from here on (R6).

        Without a lost disk an `fsync` stream has lost nothing: of the suspects the one that has most
        has everything.
        """
        if now.leader is None or not (
            self.disks_are_lost or stream.config.durability is not Durability.FSYNC
        ):
            return
        truth, copy = self.truth((stream.id, number)), self.copies[now.leader, (stream.id, number)]
        truth.unclean = now.leader_epoch
        truth.committed.cut(copy.mirror.end)
        if truth.committed.chain_at(truth.committed.end) != copy.mirror.chain_at(truth.committed.end):
            # It parts from what was committed: what it has is all there is.
            truth.committed = Mirror(copy.mirror.start_offset, copy.mirror.start_chain)
        copy.excused = False

    def _sound(self, image: ClusterImage, stream: StreamImage, number: int, now: PartitionImage) -> None:
        where, minimum = f"{stream.name}/{number}", stream.config.min_insync_effective
        require(
            now.leader is None or now.leader in now.isr, "I4", f"{where}: the leader is not in the ISR: {now}"
        )
        require(set(now.isr) <= set(now.replicas), "I4", f"{where}: the ISR has others than replicas: {now}")
        require(
            not now.eligible or len(now.isr) < minimum,
            "I4",
            f"{where}: eligible though the ISR is whole (minimum {minimum}): {now}",
        )
        for member in now.isr:
            known = image.brokers.get(member)
            require(
                known is not None and not known.fenced,
                "I4",
                f"{where}: {member} is in sync, and fenced: {now}",
            )

    def _placed(
        self, stream: StreamImage, number: int, was: PartitionImage | None, now: PartitionImage
    ) -> None:
        where = f"{stream.name}/{number}"
        if now.unclean and (was is None or now.leader_epoch > was.leader_epoch):
            self._lose(stream, number, now)
        if was is not None:
            # A lower minimum ends eligibility, and is no change of the partition.
            same = (now.leader_epoch, now.leader, now.isr, now.replicas) == (
                was.leader_epoch,
                was.leader,
                was.isr,
                was.replicas,
            )
            require(
                now.leader_epoch >= was.leader_epoch
                and (now.partition_epoch > was.partition_epoch or (same and not now.eligible)),
                "I3",
                f"{where}: epochs went back: {was} {now}",
            )
            if now.eligible:
                self.mark("R6 eligible")
            if now.leader is not None and now.leader_epoch > was.leader_epoch:
                self.mark("R6 clean election" if not now.unclean else "R6 unclean election")
                if now.leader in was.eligible and now.leader not in was.isr:
                    self.mark("R6 eligible leader")
            if len(now.isr) < len(was.isr):
                self.mark("R4 shrink")
            if len(now.isr) > len(was.isr):
                self.mark("R4 expand")
            if was.leader is not None and was.leader not in now.isr and now.leader is not None:
                self.mark("R14 leader out")
        self._check_members((stream.id, number))

    # --- logs

    def opened(self, replica: Replica) -> None:
        """A log was opened at the start of a run, or made."""
        known = self.copies.get((replica.broker.id, replica.key))
        copy = self.copies[replica.broker.id, replica.key] = Copy()
        copy.start_offset = replica.log.start_offset
        self._begin_mirror(replica, copy)
        suspect = replica.log.suspect or not self._promises(replica)
        if known is not None and not known.excused:
            require(
                replica.log.start_offset >= known.start_saved,
                "I7",
                f"{replica.name} on {replica.broker.id} began at {known.start_saved} and begins at "
                f"{replica.log.start_offset} after its recovery",
            )
            copy.start_saved = known.start_saved
        if known is not None and not known.excused and not suspect:
            require(
                replica.log.end_offset >= known.durable
                and (
                    # Of a `page-cache` stream the log may begin behind what was flushed.
                    known.durable < copy.mirror.start_offset
                    or copy.mirror.chain_at(known.durable) == known.mirror.chain_at(known.durable)
                ),
                "2a",
                f"{replica.name} on {replica.broker.id} had {known.durable} on disk and has "
                f"{replica.log.end_offset} after its recovery",
            )
            self.mark("2a recovered")
        if replica.log.suspect:
            self.mark("2b suspect")
        copy.excused = bool(suspect)
        copy.durable = replica.log.durable_offset

    def _promises(self, replica: Replica) -> bool:
        """Whether what it held durably must still be there: not after a power loss in `page-cache` mode."""
        fsync = replica.stream.config.durability is Durability.FSYNC
        return fsync or replica.broker.same_boot

    def _begin_mirror(self, replica: Replica, copy: Copy) -> None:
        copy.mirror = Mirror.begin(replica.log, lambda start: self._chain_before(replica.key, start))
        self._extend(replica, copy)

    def _chain_before(self, key: Key, start: int) -> int:
        if start == 0:
            return 0
        chain = self.truth(key).committed.chain_at(start)
        require(chain is not None, "I5", f"a log begins at {start}, where no committed batch ends")
        assert chain is not None
        return chain

    def appended(self, replica: Replica, outcome: Appended) -> None:
        """A leader appended, or answered a repeat."""
        if outcome.duplicate:
            self.mark("R8 repeat")
            return
        truth, copy = self.truth(replica.key), self.copy(replica)
        epoch = outcome.leader_epoch
        require(
            (epoch, outcome.base_offset) not in truth.batches,
            "I9",
            f"{replica.name}: offset {outcome.base_offset} is given again in epoch {epoch}",
        )
        self._extend(replica, copy)

    def replicated(self, replica: Replica) -> None:
        self._extend(replica, self.copy(replica))

    def _extend(self, replica: Replica, copy: Copy) -> None:
        truth = self.truth(replica.key)
        for link in copy.mirror.extend(replica.log):
            known = truth.batches.setdefault((link.epoch, link.base), link)
            require(
                known == link,
                "I5",
                f"{replica.name} on {replica.broker.id} has another batch, or another log before it, at "
                f"{link.base} in epoch {link.epoch}",
            )

    def truncated(self, replica: Replica, before: int) -> None:
        copy, truth = self.copy(replica), self.truth(replica.key)
        end = replica.log.end_offset
        if end < before:
            self.mark("R1 truncated")
        if end < copy.high_watermark:
            require(
                truth.unclean > 0,
                "I14",
                f"{replica.name} on {replica.broker.id} truncated to {end}, below its high watermark "
                f"{copy.high_watermark}",
            )
            self.mark("R1 unclean truncation")
        copy.high_watermark = min(copy.high_watermark, end)
        copy.mirror.cut(end)
        copy.durable = min(copy.durable, replica.log.durable_offset)

    def restarted(self, replica: Replica) -> None:
        self.mark("R1 started over")
        copy = self.copy(replica)
        if self.truth(replica.key).unclean:
            # What was deleted may be more than what an unclean leader ever had.
            copy.start_offset = copy.start_saved = replica.log.start_offset
        copy.start_offset = max(copy.start_offset, replica.log.start_offset)
        copy.durable = replica.log.durable_offset
        self._begin_mirror(replica, copy)

    def flushed(self, replica: Replica) -> None:
        copy = self.copy(replica)
        copy.durable = max(copy.durable, replica.log.durable_offset)

    def crashed(self, broker: Broker) -> None:
        """What it had on disk by then, whoever was told of it."""
        for replica in broker.replicas.values():
            copy = self.copy(replica)
            copy.durable = replica.log.durable_offset
            copy.high_watermark = 0

    def disk_lost(self, broker: Broker) -> None:
        for (owner, _), copy in self.copies.items():
            if owner == broker.id:
                copy.excused = True

    def quarantined(self, replica: Replica) -> None:
        self.mark("2c quarantine")
        self.copy(replica).excused = True

    def removed(self, replica: Replica) -> None:
        self.copies.pop((replica.broker.id, replica.key), None)

    # --- leading and following

    def leader_began(self, replica: Replica) -> None:
        truth, role, broker = self.truth(replica.key), replica.role, replica.broker
        assert role is not None
        led = truth.leaders.setdefault(role.leader_epoch, _Led(broker.id, broker.run))
        require(
            led == _Led(broker.id, broker.run),
            "I3",
            f"{replica.name}: {led} and {_Led(broker.id, broker.run)} lead in epoch {role.leader_epoch}",
        )
        copy = self.copy(replica)
        end = truth.committed.end
        require(
            copy.mirror.end >= end and copy.mirror.chain_at(end) == truth.committed.chain_at(end),
            "I8",
            f"{replica.name}: broker {broker.id} leads in epoch {role.leader_epoch} without all that was "
            f"committed: it has {copy.mirror.end}, committed is {end}",
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
            self._check_members(replica.key)
        chain = truth.committed.chain_at(high_watermark)
        require(
            chain == copy.mirror.chain_at(high_watermark),
            "I8",
            f"{replica.name}: broker {replica.broker.id} commits another log up to {high_watermark}",
        )

    def _check_members(self, key: Key) -> None:
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

    def refused(self, replica: Replica, error: TidelogError) -> None:
        """A producer is told that nothing was written."""
        match error:
            case NotEnoughReplicas():
                self.mark("R7 too few in sync")
            case UnknownProducer() | OutOfOrderSequence():
                self.mark(f"R8 {error.code}")
            case _:
                pass

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

    # --- everything

    def full(self) -> None:
        """Reads every log anew and compares it with what is believed of it."""
        for broker in self.brokers.values():
            if not broker.running:
                continue
            for replica in broker.replicas.values():
                copy = self.copy(replica)
                fresh = Mirror.begin(
                    replica.log, lambda start, key=replica.key: self._chain_before(key, start)
                )  # type: ignore[misc]
                fresh.extend(replica.log)
                require(
                    fresh.links == copy.mirror.between(fresh.start_offset, copy.mirror.end),
                    "I5",
                    f"{replica.name} on {broker.id} holds something else than was written to it",
                )
        for key in self.truths:
            self._check_members(key)
