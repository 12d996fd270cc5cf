"""Disks: lost, rotten, full, with folders on them that are somebody else's (2c, 2d, 4.4)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from simulator.node import ROOT, Node
from simulator.watch.replicas import Replica
from simulator.world import SECOND
from tidelog.records import BatchHeader
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.folder.identity import write_identity

if TYPE_CHECKING:
    from simulator.run import Simulation


class DiskFaults:
    """See the module."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._saves = run.world.rng_of("saves")

    def lose_disk(self) -> None:
        """Only while it is not the last straw: the promise is about fewer disks than the ISR has."""
        victims = [broker for broker in self._run.up() if self.can_spare(broker)]
        if not victims:
            return
        broker = self._run.rng.choice(victims)
        self._run.crash(broker, power=True)
        broker.new_disk()
        self._run.checks.disk_lost(broker)
        self._run.world.tell(f"broker {broker.id} has lost its disk")
        self._run.world.after(self._run.rng.randint(*self._run.plan.down_us), lambda: self._run.start(broker))

    def can_spare(self, victim: Node) -> bool:
        """Everybody is there, with everything, and without this disk a majority of the voters still is."""
        controller = next((broker for broker in self._run.up() if broker.controls), None)
        if controller is None or len(self._run.up()) < len(self._run.brokers):
            return False
        assert controller.assembly is not None
        image = controller.assembly.controller.image
        for broker in self._run.brokers.values():
            known = image.brokers.get(broker.id)
            if known is None or known.fenced or known.incarnation != broker.incarnation:
                return False
        if not self._votes_suffice_without(victim):
            return False
        for key in (*self._run.keys, *self._run.faults.renewals.keys):
            partition, stream = image.partition(*key), image.streams.find(key[0])
            if partition is None or stream is None:
                return False
            if victim.id not in (*partition.isr, *partition.eligible):
                continue
            if set(partition.isr) != set(partition.replicas) or stream.config.min_insync_effective < 2:
                return False
            copies = [copy for (_, other), copy in self._run.checks.copies.items() if other == key]
            if any(copy.rotten > copy.start_offset for copy in copies):
                return False
        return True

    def _votes_suffice_without(self, victim: Node) -> bool:
        """In the log of everybody: what only the leader's log holds is gone with the leader's disk."""
        disks = {broker.id: broker.directory_id for broker in self._run.brokers.values()}
        for broker in self._run.up():
            if broker.assembly is None:
                return False
            voters = broker.assembly.controller._driver.node.configuration.voters
            if any(disks[voter.broker_id] != voter.directory_id for voter in voters):
                return False
            if len(voters) < self._run.plan.voters:
                # Two voters are a step on the way to three, and lose with either disk (docs/replication.md).
                return False
            if len(voters) < 3 and any(voter.broker_id == victim.id for voter in voters):
                return False
        return True

    # --- rot

    def rot(self) -> None:
        """One bit of a cold segment turns over, of one replica of a partition at most (2c)."""
        run = self._run
        broker = run.rng.choice(sorted(run.brokers.values(), key=lambda one: one.id))
        if not broker.running or not self.can_spare(broker):
            return
        cold = [
            (replica, segment)
            for replica in broker.replicas.values()
            if replica.fsync and replica.key in run.keys and broker.id in replica.placed.isr
            if not run.checks.copy(replica).rotten
            for segment in replica.log.segments[:-1]
            if replica.log.start_offset < segment.next_offset <= _saved(replica)
        ]
        if not cold:
            return
        replica, segment = run.rng.choice(cold)
        position = run.rng.randrange(segment.size)
        end = _end_of_batch(broker.disk.tree()[segment.path], position)
        broker.disk.flip(segment.path, position, run.rng.randrange(8))
        run.checks.rotted(replica, end)
        run.world.tell(f"{replica.name} on {broker.id}: a bit turns over in {segment.path} at {position}")

    # --- room

    def fill(self) -> None:
        """A disk is full for a while (4.4)."""
        run = self._run
        if run.full is not None or not run.up():
            return
        broker = run.full = run.rng.choice(run.up())
        disks = broker.disks
        broker.disk.fill(run.rng.choice((0, 200, 2_000, 10_000)))
        run.checks.mark("4.4 disk full")
        run.world.tell(f"the disk of broker {broker.id} is full")

        def give_room() -> None:
            run.full = None
            if broker.disks == disks:
                broker.disk.fill(None)
            run.world.tell(f"the disk of broker {broker.id} has room again")

        run.world.after(run.rng.randint(SECOND // 5, 3 * SECOND), give_room)

    def fail_a_flush(self) -> None:
        """The next flush of a log fails, and the kernel forgets what it could not write (4.3)."""
        run = self._run
        up = run.up()
        if up:
            broker = run.rng.choice(up)
            broker.disk.fail("datasync", path="/streams/")
            run.world.tell(f"the disk of broker {broker.id} is about to fail a flush")

    def fail_a_save(self) -> None:
        """A broker cannot write where its logs begin, once; it has to ask for that again (R11)."""
        up = self._run.up()
        if up:
            broker = self._saves.choice(up)
            broker.disk.fail("pwrite", errno.ENOSPC, path="/log-start-offsets")
            self._run.world.tell(f"the disk of broker {broker.id} is about to refuse a checkpoint")

    # --- what is somebody else's

    def misplace(self) -> None:
        """While a broker is down somebody moves folders about on its disk (2d)."""
        run = self._run
        victims = [
            broker
            for broker in run.up()
            if broker.replicas and broker is not run.full and self.can_spare(broker)
        ]
        if not victims:
            return
        broker = run.rng.choice(victims)
        # A log of which no checkpoint speaks yet could vanish, and nobody would know that it was there.
        assert broker.broker is not None
        saved = broker.broker._store.checkpoints.recovery_point
        keys = [key for key in run.keys if key in broker.replicas and saved(key) is not None]
        folders = {key: broker.replicas[key].log.folder for key in keys}
        run.end(broker, power=False)
        kind = run.rng.choice(("unknown", "unknown", "another's", "gone"))
        if not keys or kind == "unknown":
            self._put_unknown(broker)
            return
        key = run.rng.choice(keys)
        run.world.tell(f"broker {broker.id}: the folder {folders[key]} is {kind} now")
        if kind == "another's":
            write_identity(broker.disk, folders[key], bytes(reversed(key[0])), key[1])
            run.checks.stray(broker.id, broker.disk, folders[key])
            return
        parent, _, number = folders[key].rpartition("/")
        broker.disk.rename(folders[key], f"{parent}/{int(number) + 1000 * (run.world.events + 1)}")
        broker.disk.sync_dir(parent)

    def _put_unknown(self, broker: Node) -> None:
        disk, streams = broker.disk, f"{ROOT}/streams"
        folder = f"{streams}/forgotten~{self._run.rng.getrandbits(32):08x}/0"
        disk.make_dir(folder)
        file = disk.open(f"{folder}/{0:020d}.log", create=True)
        file.pwrite([b"of another cluster"], 0)
        file.datasync()
        file.close()
        for path in (folder, folder.rpartition("/")[0], streams):
            disk.sync_dir(path)
        self._run.checks.stray(broker.id, disk, folder)
        self._run.world.tell(f"broker {broker.id}: {folder} is nobody's")

    def put_right(self, broker: Node) -> None:
        """By hand: what is another partition's makes room for what belongs there."""
        for folder in _foreign_folders(broker):
            self._run.crash(broker, power=False)
            parent, _, number = folder.rpartition("/")
            broker.disk.rename(folder, f"{parent}/.moved-{number}-{self._run.world.events}")
            broker.disk.sync_dir(parent)
            self._run.checks.forget_stray(broker.id, folder)
            self._run.world.tell(f"broker {broker.id}: {folder} was put somewhere else")
            broker.start()
            return


def _foreign_folders(node: Node) -> list[str]:
    """Those that lie where a replica of this broker should be, and are another's (2d)."""
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
    """Below it everything is known to have been durable, also to the next run."""
    point = _store(replica).checkpoints.recovery_point(replica.key)
    return 0 if point is None else min(point.offset, replica.high_watermark)


def _end_of_batch(content: bytes, position: int) -> int:
    """Behind the last offset of the batch at `position`: once nobody reads that, nobody finds its rot."""
    at = 0
    while True:
        header = BatchHeader.unpack(content, at)
        at += header.length
        if position < at:
            return header.base_offset + header.last_offset_delta + 1
