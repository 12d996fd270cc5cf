"""Looks at a broker after each event in its process, and tells the checks of every change.

The product does not know of this module, which reads the state of roles, logs and controllers. Messages are
read by `listening`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks import Checks
from simulator.node import Node, Replica
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import Command, decode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.model import Configuration, EntryType

if TYPE_CHECKING:
    from tidelog_broker.quorum.driver import RaftDriver
    from tidelog_broker.quorum.quorum_controller import QuorumController


class Seen:
    """The state of a run of a broker at the last look."""

    def __init__(self) -> None:
        self.led: int | None = None
        """The term in which it leads the quorum; None: it does not."""
        self.controls = False
        self.commit = 0
        self.applied = 0
        self.image: ClusterImage | None = None
        self.lost = 0
        self.strays = 0


class Watch:
    """Looks at all nodes of a run."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._seen: dict[int, Seen] = {}
        """By broker: the state of the run that opened its data directory last."""
        self._applied = 0
        """The last entry of the metadata log that a broker applied."""
        self._image = ClusterImage()
        """The image after that entry, built here from the entries alone."""
        self._recoveries = 0
        """How many forced recoveries the metadata had."""
        self._images: dict[int, ClusterImage] = {}
        """By entry: the image after it."""

    def look(self, node: Node) -> None:
        """Looks at a broker after an event in its process."""
        assembly = node.assembly
        if assembly is None:
            return
        if node.opened(assembly):
            self._seen[node.id] = Seen()
        self._look_at_quorum(node, assembly.controller)
        self._look_at_partitions(node)

    # --- the metadata

    def _look_at_quorum(self, node: Node, controller: QuorumController) -> None:
        checks, driver, seen = self._checks, controller._driver, self._seen[node.id]
        raft = driver.node
        if node.controls != seen.controls:
            seen.controls = node.controls
            checks.answered(node.id)
        led = raft.term if raft.leads else None
        if led is not None and seen.led != led:
            checks.controls(controller.me, raft.term, raft.log)
            seen.commit = raft.log.commit
        seen.led = led
        if led is not None and raft.log.commit != seen.commit:
            checks.committed_entries(controller.me, raft.term, seen.commit, raft.log)
            seen.commit = raft.log.commit
        recoveries = len(raft.log.configuration.recoveries)
        self._recoveries = max(self._recoveries, recoveries)
        if raft.log.last_index and recoveries < self._recoveries:
            # It still has entries that a forced recovery forgot, until another broker tells it (M2a).
            return
        if driver.applied != seen.applied:
            self._applied_on(node, driver)
            seen.applied = driver.applied
        image = controller.image
        if image is not seen.image:
            seen.image = image
            checks.compare_images(node.id, image)

    def _applied_on(self, node: Node, driver: RaftDriver) -> None:
        """The broker applied entries. Entries that no broker had applied before build the next image."""
        log, first = driver.log, self._seen[node.id].applied + 1
        held = log.snapshot_index + 1
        if first < held:
            # It applied a snapshot, of a leader or its own: that is compared as an image.
            first = held
        for entry in log.entries(first, driver.applied + 1):
            self._checks.applied(node.id, entry)
            if entry.index != self._applied + 1:
                continue
            self._applied = entry.index
            command: Command | None = None
            if entry.type is EntryType.COMMAND:
                command = decode_command(entry.payload)
                self._image = apply(self._image, command, entry.index)
            elif entry.type is EntryType.CONFIGURATION:
                self._checks.configured(Configuration.decode(entry.payload))
            self._images[entry.index] = self._image
            self._checks.imaged(node.id, self._image, command)

    def image_at(self, index: int) -> ClusterImage | None:
        """The image after an entry; None: no broker applied the entry."""
        return self._images.get(index)

    def forget(self, last: int) -> None:
        """A forced recovery of the metadata continues behind entry `last` (M2a)."""
        self._recoveries += 1
        self._applied, self._image = last, self._images[last]
        self._images = {index: image for index, image in self._images.items() if index <= last}
        self._checks.entries_forgotten(last)
        self._checks.image_forgotten(self._image)

    # --- the partitions

    def _look_at_partitions(self, node: Node) -> None:
        broker = node.broker
        assert broker is not None
        served, replicas = broker.partitions, node.replicas
        for key, partition in served.items():
            replica = replicas.get(key)
            if replica is None or replica.partition is not partition:
                if replica is not None:
                    self._gone(node, replica)
                replica = replicas[key] = Replica(node, partition)
                self._checks.came(replica)
            self._look_at(replica)
        if len(replicas) != len(served):
            for key in [key for key in replicas if key not in served]:
                self._gone(node, replicas.pop(key))
        seen, strays = self._seen[node.id], broker._hosted.strays
        if len(strays) != seen.strays:
            for folder in strays[seen.strays :]:
                self._checks.stray(node.id, node.disk, folder)
            seen.strays = len(strays)
        if len(broker.lost) != seen.lost:
            seen.lost = len(broker.lost)
            for key in broker.lost:
                if key not in broker.uncreated:
                    self._checks.lost(node.id, key, broker.lost[key], stray=key in broker._hosted.kept)

    def _gone(self, node: Node, replica: Replica) -> None:
        broker = node.broker
        assert broker is not None
        if replica.key in broker.halted:
            self._checks.halted(replica, broker.lost[replica.key])
        if replica.key in broker.lost:
            self._checks.quarantined(replica)
        else:
            self._checks.removed(replica)

    def _look_at(self, replica: Replica) -> None:
        was, now = replica.looks, replica.now()
        if was is not None and was.role is now.role and was == now:
            return
        replica.looks = now
        checks, node = self._checks, replica.node
        checks.log_changed(replica)
        if was is not None and was.damaged != now.damaged:
            checks.damage_changed(replica, was.damaged, now.damaged)
        if (was is None or was.role is not now.role) and isinstance(now.role, LeaderPartition):
            node.world.tell(
                f"{replica.name} on {node.id}: leads in epoch {now.role.leader_epoch} from "
                f"{now.end_offset}, isr {list(replica.placed.isr)}"
            )
            checks.leader_began(replica)
        if was is None or was.high_watermark != now.high_watermark or was.role is not now.role:
            checks.reached(replica, now.high_watermark)
        checks.touched(replica)
