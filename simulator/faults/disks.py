"""Disks: lost, rotten, full, with failed flushes, or with folders of other partitions (2c, 2d, 4.3, 4.4)."""

from __future__ import annotations

import errno

from simulator.clients.renewals import Renewals
from simulator.cluster import Cluster
from simulator.node import ROOT, Node, Replica
from simulator.world import SECOND
from tidelog.records import BatchHeader
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.folder.identity import write_identity


class DiskFaults:
    """Changes the disks of brokers that the cluster can spare."""

    def __init__(self, cluster: Cluster, renewals: Renewals) -> None:
        self._cluster = cluster
        self._renewals = renewals
        self._saves = cluster.world.rng_of("saves")

    def lose_disk(self) -> None:
        """Replaces a disk by an empty one, if the others have everything: the promise does not cover more."""
        victims = [broker for broker in self._cluster.up() if self.can_spare(broker)]
        if not victims:
            return
        broker = self._cluster.rng.choice(victims)
        self._cluster.crash(broker, power=True)
        broker.new_disk()
        self._cluster.checks.disk_lost(broker)
        self._cluster.world.tell(f"broker {broker.id} has lost its disk")
        self._cluster.world.after(
            self._cluster.rng.randint(*self._cluster.plan.down_us), lambda: self._cluster.start(broker)
        )

    def can_spare(self, victim: Node) -> bool:
        """Whether all brokers are up, every replica is in sync, and a majority of voters remains without this
        disk."""
        controller = next((broker for broker in self._cluster.up() if broker.controls), None)
        if controller is None or len(self._cluster.up()) < len(self._cluster.nodes):
            return False
        assert controller.assembly is not None
        image = controller.assembly.controller.image
        for broker in self._cluster.nodes.values():
            known = image.brokers.get(broker.id)
            if known is None or known.fenced or known.incarnation != broker.incarnation:
                return False
        if not self._votes_suffice_without(victim):
            return False
        for key in (*self._cluster.keys, *self._renewals.keys):
            partition, stream = image.partition(*key), image.streams.find(key[0])
            if partition is None or stream is None:
                return False
            if victim.id not in (*partition.isr, *partition.eligible):
                continue
            if set(partition.isr) != set(partition.replicas) or stream.config.min_insync_effective < 2:
                return False
            copies = [copy for (_, other), copy in self._cluster.checks.copies.items() if other == key]
            if any(copy.rotten > copy.start_offset for copy in copies):
                return False
        return True

    def _votes_suffice_without(self, victim: Node) -> bool:
        """Whether a majority of voters remains, by the log of every broker: an entry that only the leader's
        log has is lost with the leader's disk."""
        disks = {broker.id: broker.directory_id for broker in self._cluster.nodes.values()}
        for broker in self._cluster.up():
            if broker.assembly is None:
                return False
            voters = broker.assembly.controller._driver.node.configuration.voters
            if any(disks[voter.broker_id] != voter.directory_id for voter in voters):
                return False
            if len(voters) < self._cluster.plan.voters:
                # The cluster is on its way to three voters. Of two voters neither disk may be lost
                # (docs/replication.md).
                return False
            if len(voters) < 3 and any(voter.broker_id == victim.id for voter in voters):
                return False
        return True

    # --- rot

    def rot(self) -> None:
        """Flips one bit of a cold segment, in at most one replica of a partition (2c)."""
        cluster = self._cluster
        broker = cluster.rng.choice(sorted(cluster.nodes.values(), key=lambda one: one.id))
        if not broker.running or not self.can_spare(broker):
            return
        cold = [
            (replica, segment)
            for replica in broker.replicas.values()
            if replica.fsync and replica.key in cluster.keys and broker.id in replica.placed.isr
            if not cluster.checks.copy(replica).rotten
            for segment in replica.log.segments[:-1]
            if replica.log.start_offset < segment.next_offset <= _saved(replica)
        ]
        if not cold:
            return
        replica, segment = cluster.rng.choice(cold)
        position = cluster.rng.randrange(segment.size)
        end = _end_of_batch(broker.disk.tree()[segment.path], position)
        broker.disk.flip(segment.path, position, cluster.rng.randrange(8))
        cluster.checks.rotted(replica, end)
        cluster.world.tell(f"{replica.name} on {broker.id}: a bit turns over in {segment.path} at {position}")

    # --- room

    def fill(self) -> None:
        """Makes a disk full for a while (4.4)."""
        cluster = self._cluster
        if cluster.full is not None or not cluster.up():
            return
        broker = cluster.full = cluster.rng.choice(cluster.up())
        disks = broker.disks
        broker.disk.fill(cluster.rng.choice((0, 200, 2_000, 10_000)))
        cluster.checks.mark("4.4 disk full")
        cluster.world.tell(f"the disk of broker {broker.id} is full")

        def give_room() -> None:
            cluster.full = None
            if broker.disks == disks:
                broker.disk.fill(None)
            cluster.world.tell(f"the disk of broker {broker.id} has room again")

        cluster.world.after(cluster.rng.randint(SECOND // 5, 3 * SECOND), give_room)

    def fail_a_flush(self) -> None:
        """Makes the next flush of a log fail; the kernel drops the pages that it could not write (4.3)."""
        cluster = self._cluster
        up = cluster.up()
        if up:
            broker = cluster.rng.choice(up)
            broker.disk.fail("datasync", path="/streams/")
            cluster.world.tell(f"the disk of broker {broker.id} is about to fail a flush")

    def fail_a_save(self) -> None:
        """Makes one write of the log start offsets fail; the broker must try it again (R11)."""
        up = self._cluster.up()
        if up:
            broker = self._saves.choice(up)
            broker.disk.fail("pwrite", errno.ENOSPC, path="/log-start-offsets")
            self._cluster.world.tell(f"the disk of broker {broker.id} is about to refuse a checkpoint")

    # --- misplaced folders

    def misplace(self) -> None:
        """Adds, renames or re-labels a folder on the disk of a broker that is down (2d)."""
        cluster = self._cluster
        victims = [
            broker
            for broker in cluster.up()
            if broker.replicas and broker is not cluster.full and self.can_spare(broker)
        ]
        if not victims:
            return
        broker = cluster.rng.choice(victims)
        # If a log without a checkpoint vanished, the broker could not know that it had existed.
        assert broker.broker is not None
        saved = broker.broker._store.checkpoints.recovery_point
        keys = [key for key in cluster.keys if key in broker.replicas and saved(key) is not None]
        folders = {key: broker.replicas[key].log.folder for key in keys}
        cluster.end(broker, power=False)
        kind = cluster.rng.choice(("unknown", "unknown", "another's", "gone"))
        if not keys or kind == "unknown":
            self._put_unknown(broker)
            return
        key = cluster.rng.choice(keys)
        cluster.world.tell(f"broker {broker.id}: the folder {folders[key]} is {kind} now")
        if kind == "another's":
            write_identity(broker.disk, folders[key], bytes(reversed(key[0])), key[1])
            cluster.checks.stray(broker.id, broker.disk, folders[key])
            return
        parent, _, number = folders[key].rpartition("/")
        broker.disk.rename(folders[key], f"{parent}/{int(number) + 1000 * (cluster.world.events + 1)}")
        broker.disk.sync_dir(parent)

    def _put_unknown(self, broker: Node) -> None:
        disk, streams = broker.disk, f"{ROOT}/streams"
        folder = f"{streams}/forgotten~{self._cluster.rng.getrandbits(32):08x}/0"
        disk.make_dir(folder)
        file = disk.open(f"{folder}/{0:020d}.log", create=True)
        file.pwrite([b"of another cluster"], 0)
        file.datasync()
        file.close()
        for path in (folder, folder.rpartition("/")[0], streams):
            disk.sync_dir(path)
        self._cluster.checks.stray(broker.id, disk, folder)
        self._cluster.world.tell(f"broker {broker.id}: {folder} is nobody's")

    def put_right(self, broker: Node) -> None:
        """Repairs by hand: moves a folder of another partition away from the place of a replica."""
        for folder in _foreign_folders(broker):
            self._cluster.crash(broker, power=False)
            parent, _, number = folder.rpartition("/")
            broker.disk.rename(folder, f"{parent}/.moved-{number}-{self._cluster.world.events}")
            broker.disk.sync_dir(parent)
            self._cluster.checks.forget_stray(broker.id, folder)
            self._cluster.world.tell(f"broker {broker.id}: {folder} was put somewhere else")
            broker.start()
            return


def _foreign_folders(node: Node) -> list[str]:
    """Folders of other partitions in the place of a replica of this broker (2d)."""
    broker = node.broker
    if broker is None:
        return []
    streams = broker.controller.image.streams
    names = {key: streams.find(key[0]) for key in sorted(broker._hosted.kept)}
    folders = [broker._store.folders.of(one.name, *key) for key, one in names.items() if one is not None]
    return [folder for folder in folders if node.disk.exists(folder)]


def _store(replica: Replica) -> LogStore:
    assert replica.node.broker is not None
    return replica.node.broker._store


def _saved(replica: Replica) -> int:
    """The offset below which all is durable, and the next run knows it."""
    point = _store(replica).checkpoints.recovery_point(replica.key)
    return 0 if point is None else min(point.offset, replica.high_watermark)


def _end_of_batch(content: bytes, position: int) -> int:
    """The next offset after the batch at `position`. A log that starts there never reads the rotten batch."""
    at = 0
    while True:
        header = BatchHeader.unpack(content, at)
        at += header.length
        if position < at:
            return header.base_offset + header.last_offset_delta + 1
