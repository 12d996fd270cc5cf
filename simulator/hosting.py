"""Which replicas a simulated broker has: opened at a start, made, removed, set aside, looked through.

A log that is lost is made anew only once nobody counts on it (2c), a folder of somebody else's is kept
(2d), and one that is to go does so after the deletion is confirmed (M5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.replica import Key, Replica
from simulator.requests import LoseReplica
from simulator.world import MS, SECOND
from tidelog.errors import DataCorrupt
from tidelog.model import Durability
from tidelog_broker.core.metadata.commands import ReplicaName, Suspect
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.storage.log import LogConfig
from tidelog_broker.storage.store import LogStore, Wanted

if TYPE_CHECKING:
    from simulator.broker import Broker

SEGMENT_BYTES: Final = 8 << 10
SCRUB_US: Final = 250 * MS
"""After so long the next closed segment of each replica is looked through."""
SCRUB_BYTES: Final = 16 << 10
SPARE_US: Final = 500 * MS
"""A replica with damage asks so often whether others can do without it."""
MAKE_AGAIN_US: Final = 500 * MS
"""A disk that is full is tried again so often."""
DELETED_US: Final = (100 * MS, 2 * SECOND)
"""How long a folder that is to go stays."""


class Hosting:
    """See the module. Of one run."""

    def __init__(self, broker: Broker, store: LogStore) -> None:
        self._broker = broker
        self.store = store
        self.replicas: dict[Key, Replica] = {}
        self._lost: dict[Key, bool] = {}
        """Without a log; whether it stays so until people put it right (2d)."""
        self._lost_of: dict[Key, int] = {}
        """Which assignment of it was lost (R16)."""
        self._role_numbers = 0
        self._confessed = False
        self._spare: dict[Replica, int] = {}
        """Replicas with damage, and when they asked last whether they may go. µs."""
        self._scrubbed: dict[Replica, int] = {}
        """The offset up to which each was looked through."""

    def next_role_number(self) -> int:
        """Never the same twice in a run: a replica that is made anew may follow over the connection on which
        an answer for the one before is on its way (R2)."""
        self._role_numbers += 1
        return self._role_numbers

    # --- at a start

    def open_all(self, image: ClusterImage) -> None:
        broker = self._broker
        wanted = [want for stream in image.streams.values() for want in self._placed(stream)]
        opened = self.store.open_all(wanted, same_boot=broker.same_boot)
        for lost in opened.lost:
            key = (lost.wanted.stream_id, lost.wanted.partition)
            self._lost[key] = lost.stray
            self._lost_of[key] = lost.wanted.assignment
            broker.checks.lost(broker.id, key, stray=lost.stray)
            if not lost.stray:
                # It was a stray perhaps, is a replica again, and was set aside as one.
                broker.checks.put_right(broker.id, self.store.folder(lost.wanted.name, *key))
            broker.world.tell(
                f"broker {broker.id} lost {lost.wanted.name}/{lost.wanted.partition}: {lost.reason}"
            )
        for key in opened.left:
            broker.checks.left(broker.id, key)
            # Perhaps it was a stray until it was given again.
            broker.checks.put_right(broker.id, self.store.folder(image.streams[key[0]].name, *key))
        for folder in opened.strays:
            broker.checks.stray(broker.id, broker.disk, folder)
        for key, log in opened.logs.items():
            stream = image.streams[key[0]]
            hw = self.store.checkpoints.high_watermark(key)
            if not broker.same_boot and stream.config.durability is Durability.PAGE_CACHE:
                # Durably, because this run may end before anybody was told (R6).
                log.mark_suspect("the machine stopped, and what was written last may be lost")
            self.replicas[key] = Replica(broker, stream, key[1], log, hw)
            broker.checks.found_again(self.replicas[key])
            broker.checks.opened(self.replicas[key])
        broker.checks.strays_kept(broker)
        for folder in self.store.deleted_folders():
            self._remove_later(folder)

    def _placed(self, stream: StreamImage) -> list[Wanted]:
        config = LogConfig(segment_bytes=SEGMENT_BYTES)
        return [
            Wanted(stream.name, stream.id, number, config, partition.assignment_of(self._broker.id))
            for number, partition in enumerate(stream.partitions)
            if self._broker.id in partition.replicas
        ]

    def confess(self) -> tuple[tuple[Suspect, ...], tuple[ReplicaName, ...]]:
        """What this run found that cannot be trusted: suspect and lost replicas (R6)."""
        suspects = tuple(
            Suspect(*key, last_epoch(replica.log) or 0, replica.log.end_offset, replica.log.assignment)
            for key, replica in self.replicas.items()
            if replica.log.suspect
        )
        return suspects, () if self._confessed else tuple(
            ReplicaName(*key, self._lost_of[key]) for key in self._lost
        )

    def registered(self, image: ClusterImage) -> None:
        """The image says by now what was confessed."""
        self._confessed = True
        gone = {one.key[0]: one.stream for one in self.replicas.values() if one.key[0] not in image.streams}
        for stream in gone.values():
            self.deleted(stream)
        for replica in self.replicas.values():
            if replica.log.suspect:
                replica.log.clear_suspect()

    def foreign_folders(self) -> list[str]:
        """Those that lie where a replica of this broker should be, and are another's (2d)."""
        image = self._broker.image
        names = {key: image.streams.find(key[0]) for key, kept in self._lost.items() if kept}
        folders = [self.store.folder(one.name, *key) for key, one in names.items() if one is not None]
        return [folder for folder in folders if self._broker.disk.exists(folder)]

    # --- the image

    def apply(self, image: ClusterImage, stream: StreamImage) -> None:
        for want in self._placed(stream):
            key = (want.stream_id, want.partition)
            if key in self.replicas and self.replicas[key].log.assignment != want.assignment:
                # It left and came again, and both were seen at once (R16).
                self._leave(key)
            if key in self._lost and self._lost_of[key] != want.assignment:
                del self._lost[key]
            if key not in self.replicas and self._is_missing(stream, key):
                self._make(stream, want)
            if key in self.replicas and not self._spared(self.replicas[key], stream):
                self.replicas[key].imaged(image, stream)
        for number, partition in enumerate(stream.partitions):
            if self._broker.id not in partition.replicas:
                self._leave((stream.id, number))

    def _make(self, stream: StreamImage, want: Wanted) -> None:
        key, broker = (want.stream_id, want.partition), self._broker
        try:
            log = self.store.create(want)
        except OSError as error:
            broker.world.tell(f"broker {broker.id} cannot make {want.name}/{want.partition}: {error}")
            broker.after(MAKE_AGAIN_US, self._make_all)
            return
        self._lost.pop(key, None)
        self.replicas[key] = Replica(broker, stream, want.partition, log, 0)
        broker.checks.made(self.replicas[key])

    def _make_all(self) -> None:
        for stream in self._broker.image.streams.values():
            self.apply(self._broker.image, stream)

    def _spared(self, replica: Replica, stream: StreamImage) -> bool:
        """It has damage, and a leader epoch begins in which nobody counts on it: its log goes before it says
        a word in that epoch, so that no acknowledgement is older than the loss (R6)."""
        now, before = stream.partitions[replica.key[1]], replica.placed
        members = (*now.isr, *now.eligible)
        if (
            replica not in self._spare
            or self._broker.id in members
            or now.leader_epoch <= before.leader_epoch
        ):
            return False
        self._set_aside(replica, "damaged", kept=False)
        return True

    def _is_missing(self, stream: StreamImage, key: Key) -> bool:
        if key not in self._lost:
            return True
        partition = stream.partitions[key[1]]
        members = (*partition.isr, *partition.eligible)
        return not self._lost[key] and bool(members) and self._broker.id not in members

    def _leave(self, key: Key) -> None:
        self._lost.pop(key, None)
        gone = self.replicas.pop(key, None)
        if gone is not None:
            gone.leave()
            self._broker.checks.removed(gone)
            try:
                self._remove_later(self.store.remove_replica(gone.log))
            except OSError as error:
                self._broker.world.tell(f"broker {self._broker.id} keeps {gone.name}, a stray now: {error}")

    def deleted(self, stream: StreamImage) -> None:
        """Its folder is set aside at once, and removed when a majority confirmed that it may be (M5)."""
        gone = [self.replicas.pop(key) for key in list(self.replicas) if key[0] == stream.id]
        for replica in gone:
            replica.leave()
            self._broker.checks.removed(replica)
        for key in [key for key in self._lost if key[0] == stream.id]:
            del self._lost[key]
        folder = self.store.delete_stream(stream.name, stream.id, [replica.log for replica in gone])
        if folder is not None:
            self._remove_later(folder)

    def _remove_later(self, folder: str) -> None:
        broker = self._broker

        def remove() -> None:
            broker.checks.folder_goes(broker, folder)
            self.store.remove_deleted(folder)

        delay = broker.rng.randint(*DELETED_US)
        broker.after(delay, lambda: broker.asking.confirm(remove))

    # --- what is set aside

    def quarantine(self, replica: Replica, reason: str) -> None:
        """R1: it contradicts its leader, and stays away until people decide."""
        self._set_aside(replica, reason, kept=True)
        name = ReplicaName(*replica.key, replica.log.assignment)
        self._broker.asking.ask(
            LoseReplica(self._broker.id, self._broker.incarnation, name), lambda response: None
        )

    def _set_aside(self, replica: Replica, reason: str, *, kept: bool) -> None:
        broker = self._broker
        broker.world.tell(f"{replica.name} on {broker.id} is set aside: {reason}")
        broker.checks.quarantined(replica)
        replica.leave()
        self.replicas.pop(replica.key, None)
        self._lost[replica.key] = kept
        self._lost_of[replica.key] = replica.log.assignment
        self.store.quarantine(replica.log, reason)
        self._spare.pop(replica, None)
        # Perhaps the image knows of it already.
        self._broker.after(0, self._make_all)

    # --- damage

    def scrub(self) -> None:
        """Looks through the next closed segment of each replica, and has those with damage replaced."""
        for replica in list(self.replicas.values()):
            log = replica.log
            offset = max(self._scrubbed.get(replica, 0), log.start_offset)
            segment = next((one for one in log.segments[:-1] if one.next_offset > offset), None)
            self._scrubbed[replica] = 0 if segment is None else segment.next_offset
            if segment is not None:
                _look_through(replica, max(segment.base_offset, log.start_offset), segment.next_offset)
            if log.damaged:
                self._spare_damaged(replica)

    def _spare_damaged(self, replica: Replica) -> None:
        """2c: refetched as a whole, if others have what it had; until then it serves the rest."""
        broker, now = self._broker, self._broker.world.now
        asked = self._spare.get(replica)
        if asked is not None and now - asked < SPARE_US:
            return
        if asked is None:
            broker.checks.mark("2c damage found")
            broker.world.tell(f"{replica.name} on {broker.id} is damaged: {replica.log.damaged}")
        self._spare[replica] = now

        name = ReplicaName(*replica.key, replica.log.assignment)
        request = LoseReplica(broker.id, broker.incarnation, name, spare=True)
        broker.asking.ask(request, lambda response: None, once=True)


def _look_through(replica: Replica, offset: int, end: int) -> None:
    try:
        while offset < end:
            chunk = replica.log.read(offset, SCRUB_BYTES, end)
            if chunk is None:
                return
            offset = chunk.next_offset
    except DataCorrupt:
        return  # It is known now where.
