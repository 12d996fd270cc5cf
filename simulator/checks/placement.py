"""Checks of the image: the same on all brokers, and consistent; elections, fencing and reports (I2–I4,
I16)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from simulator.checks.truth import Knowledge, Setup, require
from tidelog.model import Durability
from tidelog_broker.core.metadata.commands import Command, ReplicaName, ReplicasLost
from tidelog_broker.core.metadata.controller.reports import Evidence
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.metadata.snapshot import encode_image
from tidelog_broker.offline.quorum_recovery import EPOCH_STRIDE

if TYPE_CHECKING:
    pass

REPORTS_REMEMBERED_US: Final = 120_000_000
"""How long a report may take to have an effect: the network is slow, the controller waits, and its decision
may be committed only when its voters are back."""


class PlacementChecks(Knowledge):
    """Checks each new image against the one before it, and against reports and proposals."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._images: dict[int, int] = {}
        """By version: a fingerprint of the image."""
        self._reports: dict[tuple[bytes, int], int] = {}
        """By the reported run and the reporter: the time of the last report."""
        self._damaged: dict[tuple[bytes, bytes, int], None] = {}
        """Run, stream and partition: replicas that their own broker reported as damaged."""
        self._clocks_off: dict[bytes, None] = {}
        """Runs that reported a clock that is wrong for long: their leaderships move (R18)."""
        self._proposed: dict[tuple[bytes, int, int, int], list[dict[int, bytes]]] = {}
        """By stream, partition, leader epoch and partition epoch: the runs that a leader proposes for the
        ISR."""
        self._set_aside = False
        """The entry of the newest image reports lost replicas."""

    def imaged(self, broker: int, image: ClusterImage, command: Command | None = None) -> None:
        """The image after an entry that no broker had applied before, and the command of the entry."""
        if image.version <= self.image.version:
            return
        self._images[image.version] = zlib.crc32(encode_image(image))
        before, self.image = self.image, image
        self._set_aside = isinstance(command, ReplicasLost)
        for _, old, stream in image.streams.changes(before.streams):
            if stream is None:
                continue
            self.stream_set(stream)
            for number, partition in enumerate(stream.partitions):
                was = old.partitions[number] if old is not None and number < len(old.partitions) else None
                self._sound(image, stream, number, partition)
                if was != partition:
                    self._placed(before, image, stream, number, was, partition)
        if image.brokers is not before.brokers:
            self._fenced(before, image)
            self.fenced(image)
            for stream in image.streams.values():
                for number, partition in enumerate(stream.partitions):
                    self._sound(image, stream, number, partition)

    def image_forgotten(self, image: ClusterImage) -> None:
        """The metadata continues by force from an earlier image (M2a)."""
        forgotten, self.image = self.image, image
        self._images = {version: known for version, known in self._images.items() if version <= image.version}
        for _, old, stream in image.streams.changes(forgotten.streams):
            assert old is not None, "a recovery keeps all streams"
            assert stream is not None, "a recovery keeps all streams"
            self.stream_set(stream)
            for number, (was, now) in enumerate(zip(old.partitions, stream.partitions, strict=True)):
                if was != now:
                    self.truth((stream.id, number)).forget(now.leader_epoch + EPOCH_STRIDE)
                    self.mark("M2a changes forgotten")

    def compare_images(self, broker: int, image: ClusterImage) -> None:
        """A broker has this image, which must be the one that the entries up to its version give."""
        known = self._images.get(image.version)
        require(
            known in (None, zlib.crc32(encode_image(image))),
            "I2",
            f"broker {broker} has another image of version {image.version} than other brokers",
        )

    def _fenced(self, before: ClusterImage, image: ClusterImage) -> None:
        """M3: no run is fenced that was up and reachable all the time."""
        for known in image.brokers.values():
            was = before.brokers.get(known.id)
            if known.fenced and was is not None and not was.fenced:
                self.mark("M3 fenced")
                require(
                    self.brokers[known.id].incarnation != known.incarnation
                    or not self.surroundings.is_undisturbed(known.id),
                    "M3",
                    f"broker {known.id} is fenced, although it runs and the network around it is undisturbed",
                )
            if was is not None and was.incarnation != known.incarnation:
                self.mark("R10 another run")
                self.registered(known)

    # --- one partition

    def _sound(self, image: ClusterImage, stream: StreamImage, number: int, now: PartitionImage) -> None:
        where, minimum = f"{stream.name}/{number}", stream.config.min_insync_effective
        require(
            now.leader is None or now.leader in now.isr, "I4", f"{where}: the leader is not in the ISR: {now}"
        )
        require(
            set(now.isr) <= set(now.replicas),
            "I4",
            f"{where}: the ISR has a member that is no replica: {now}",
        )
        require(
            not now.eligible or len(now.isr) < minimum,
            "I4",
            f"{where}: it has eligible replicas, although its ISR is not below the minimum {minimum}: {now}",
        )
        require(
            len(now.target) >= stream.config.replication_factor <= len(now.origin),
            "I4",
            f"{where}: it has fewer than {stream.config.replication_factor} replicas: {now}",
        )
        for member in now.isr:
            known = image.brokers.get(member)
            require(
                known is not None and not known.fenced,
                "I4",
                f"{where}: broker {member} is in the ISR and fenced: {now}",
            )

    def _placed(
        self,
        before: ClusterImage,
        image: ClusterImage,
        stream: StreamImage,
        number: int,
        was: PartitionImage | None,
        now: PartitionImage,
    ) -> None:
        where = f"{stream.name}/{number}"
        if now.unclean and (was is None or now.leader_epoch > was.leader_epoch):
            self._lose(stream, number, now)
        if was is not None:
            # A lower minimum ends the eligibility of replicas, without a change of the partition.
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
                f"{where}: the leader epoch or the partition epoch did not grow: {was} {now}",
            )
            if was.leader is not None and was.leader != now.leader:
                self.truth((stream.id, number)).led_until[was.leader] = self.now_us()
            self._mark_change(was, now)
            self._joined(before, (stream.id, number), was, now)
            self._reported(before, image, (stream.id, number), was, now)
            if was.reassigning and not now.reassigning and now.replicas == was.target:
                require(
                    all(member in now.isr for member in was.adding),
                    "I4",
                    f"{where}: a reassignment ends, and not all of {list(was.adding)} are in the ISR: {was} "
                    f"{now}",
                )
            left = [member for member in was.replicas if member not in now.replicas]
            for member in left:
                self.left(member, (stream.id, number))
            if left and was.reassigning:
                # The minimum of before: with more replicas than before, it may be higher from now on.
                earlier = before.streams[stream.id].config
                minimum = min(earlier.min_insync_effective, stream.config.min_insync_effective)
                require(
                    len(now.isr) >= min(minimum, len(was.isr)),
                    "I4",
                    f"{where}: replicas {left} are removed, and fewer than {minimum} are in the "
                    f"ISR: {was} {now}",
                )
        self.members((stream.id, number))

    def _mark_change(self, was: PartitionImage, now: PartitionImage) -> None:
        if now.eligible:
            self.mark("R6 eligible")
        if now.leader is not None and now.leader_epoch > was.leader_epoch:
            self.mark("R6 unclean election" if now.unclean else "R6 clean election")
            if now.leader in was.eligible and now.leader not in was.isr:
                self.mark("R6 eligible leader")
        if len(now.isr) < len(was.isr):
            self.mark("R4 shrink")
        if len(now.isr) > len(was.isr):
            self.mark("R4 expand")
        if now.adding and not was.adding:
            self.mark("M reassignment begun")
        if len(now.target) != len(was.target):
            self.mark("M other copies")
        if now.target != was.target and {*now.target} == {*was.target}:
            self.mark("M other order")
        if was.reassigning and not now.reassigning:
            self.mark("M reassignment ended")

    def _lose(self, stream: StreamImage, number: int, now: PartitionImage) -> None:
        """An unclean election: the committed records are now those that the leader has (R6).

        Without a lost disk an `fsync` stream has lost no record: of the suspect replicas, the one with the
        longest log has all records. Records that were acknowledged before the stream became fsync may be lost
        (R17).
        """
        truth = self.truth((stream.id, number))
        fsync = stream.config.durability is Durability.FSYNC
        if now.leader is None or not (self.disks_are_lost or not fsync or truth.switched):
            return
        truth.unclean = truth.unclean_begins = now.leader_epoch

    # --- proposals

    def proposed(self, proposal: IsrProposal) -> None:
        """A leader sends a proposal for an ISR to the controller on another broker."""
        self.mark("R4 proposed")
        about = (proposal.stream_id, proposal.partition, proposal.leader_epoch, proposal.partition_epoch)
        runs = {member.broker: member.incarnation for member in proposal.isr}
        self._proposed.setdefault(about, []).append(runs)
        placed = self.image.partition(proposal.stream_id, proposal.partition)
        if placed is not None and placed.leader is not None and runs.keys() < {*placed.isr}:
            self.surroundings.removal_is_proposed(placed.leader)

    def _joined(
        self, before: ClusterImage, key: tuple[bytes, int], was: PartitionImage, now: PartitionImage
    ) -> None:
        """R4, R10: a broker joins the ISR only in the run that its leader proposed."""
        gained = [member for member in now.isr if member not in was.isr]
        heard = self._proposed.get((*key, was.leader_epoch, was.partition_epoch), [])
        if not gained or now.leader_epoch != was.leader_epoch or was.leader in self.controllers:
            return
        joining = {member: before.brokers[member].incarnation for member in gained}
        require(
            any(joining.items() <= runs.items() for runs in heard),
            "R4",
            f"{before.streams[key[0]].name}/{key[1]}: {gained} join the ISR, and the leader did not propose "
            f"these runs in this partition epoch: {was} {now}",
        )

    # --- reports

    def reported(self, reporter: int, run: bytes, evidence: Evidence, now_us: int) -> None:
        """A broker reports to the controller that the run of another broker is gone (R14)."""
        self.mark(f"R14 reported {evidence.value}")
        self._reports[run, reporter] = now_us

    def clock_off(self, run: bytes) -> None:
        """A broker reports to the controller that its clock was wrong for long."""
        self._clocks_off[run] = None

    def damaged(self, run: bytes, name: ReplicaName) -> None:
        """A broker reports a damaged range to the controller (R6): it hands its leadership over."""
        self._damaged[run, name.stream_id, name.partition] = None

    def _reported(
        self,
        before: ClusterImage,
        image: ClusterImage,
        key: tuple[bytes, int],
        was: PartitionImage,
        now: PartitionImage,
    ) -> None:
        """R14: a leader is deposed while its run is registered, not fenced, not stopping and not damaged only
        if most of its ISR reported it."""
        if was.leader is None or now.leader in (None, was.leader) or was.leader not in now.replicas:
            return
        known, old = image.brokers.get(was.leader), before.brokers.get(was.leader)
        if known is None or old is None or known.incarnation != old.incarnation:
            return
        if known.fenced or known.stopping or self._set_aside or self.leaders_are_moved:
            return
        if (known.incarnation, *key) in self._damaged or known.incarnation in self._clocks_off:
            return
        if was.leader in self.controllers:
            # The controller does not send reports about itself.
            return
        where = f"{image.streams[key[0]].name}/{key[1]}"
        others = [member for member in was.isr if member != was.leader]
        said = [member for member in others if self._said(known.incarnation, member)]
        require(
            2 * len(said) > len(others),
            "I16",
            f"{where}: leader {was.leader} is deposed by reports; only {said} of the other members {others} "
            f"reported it",
        )
        self.mark("R14 elected by report")

    def _said(self, run: bytes, reporter: int) -> bool:
        if reporter in self.controllers:
            # The controller's own evidence needs no message on the network.
            return True
        at = self._reports.get((run, reporter))
        return at is not None and self.now_us() - at <= REPORTS_REMEMBERED_US
