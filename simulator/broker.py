"""A simulated broker: its life, its disk, and the parts that perform the rules.

It starts as a broker does: Raft first; when the image is current, the logs; then it registers, and leads
and follows once its own image shows the run that registered (R10). A crash ends it between two events; what
its disk keeps of that is `disk`'s.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from simulator.asking import Asking
from simulator.checks import Checks
from simulator.disk import FakeDisk
from simulator.flushing import CHECKPOINT_US, Flushing
from simulator.hosting import SCRUB_US, Hosting
from simulator.links import Links
from simulator.network import Network
from simulator.quorum import FAST_TICK_US, FAST_TIMES, TICK_US, TIMES, Quorum
from simulator.replica import Key, Replica
from simulator.settling import Settling
from simulator.world import MS, World
from tidelog.errors import NotEnoughReplicas, NotLeader, TidelogError
from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, FormatCluster, encode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.replication.messages import Refusal, Refused
from tidelog_broker.core.replication.times import ReplicationTimes
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter
from tidelog_broker.storage.raft_log import create_raft_log
from tidelog_broker.storage.raft_recovery import open_raft_log
from tidelog_broker.storage.reserve import Reserve
from tidelog_broker.storage.store import LogStore

ROOT: Final = "/data"
RAFT: Final = f"{ROOT}/raft"
CLUSTER_ID: Final = b"simulated-cluste"
T0_US: Final = 1_767_225_600_000_000

HEARTBEAT_US: Final = 250 * MS
RESERVE_BYTES: Final = 64 << 10


class Broker:
    """See the module."""

    def __init__(
        self,
        world: World,
        network: Network,
        checks: Checks,
        broker_id: int,
        others: dict[int, Broker],
        quorums: dict[int, Quorum],
        *,
        voters_wanted: int,
        times: ReplicationTimes,
    ) -> None:
        self.world = world
        self.network = network
        self.checks = checks
        self.id = broker_id
        self.others = others
        """All brokers, by id."""
        self.times = times
        self._quorums = quorums
        self._voters_wanted = voters_wanted
        self.rng: random.Random = world.rng_of(f"broker {broker_id}")
        self.run = 0
        self.running = False
        self.disk = FakeDisk()
        self.disks = 0
        self.directory_id = b""
        self.same_boot = True
        """No power was lost since a run of this machine last opened its logs."""
        self.raft_same_boot = True
        self.started_us = 0
        self.disk_us = (100, 400)
        """How long a flush takes, at least and at most."""
        self.skew_us = 0
        self.fast_raft = False
        self.late_copies = 0.0
        """Probability that a proposal arrives a second time, much later."""
        self.scrubs = False
        """It looks through its closed segments (4.8)."""
        self.volume_flush = False
        """Logs are made durable by one flush of the whole disk (4.3)."""
        self.new_disk()

    def __repr__(self) -> str:
        return f"<Broker {self.id} run={self.run} {'up' if self.running else 'down'} {len(self.replicas)}>"

    # --- disks and starts

    def new_disk(self) -> None:
        """An empty one, with a directory id of its own."""
        self.disk = FakeDisk()
        self.disks += 1
        self.directory_id = bytes([self.id, self.disks]) * 8
        self.disk.make_dir(ROOT)
        self.disk.sync_dir("/")
        self._formatted = False
        self.starts = 0

    def format(self, entries: tuple[Entry, ...] = ()) -> None:
        state = HardState(1, None, len(entries)) if entries else HardState()
        create_raft_log(self.disk, RAFT, state, entries)
        self._formatted = True

    def format_cluster(self) -> None:
        """M1: the first broker, and its only voter."""
        voters = Configuration((Voter(self.id, self.directory_id),))
        self.format((
            Entry(1, 1, EntryType.CONFIGURATION, voters.encode()),
            Entry(2, 1, EntryType.COMMAND, encode_command(FormatCluster(CLUSTER_ID, FEATURE_LEVEL))),
        ))  # fmt: skip

    def start(self) -> None:
        """A new run."""
        self.run += 1
        self.starts += 1
        self.running = True
        self.started_us = self.world.now
        self.incarnation = f"broker{self.id:03} run{self.run:03}".encode()[:16].ljust(16)
        self.image = ClusterImage()
        self._opening = self._opened = False
        self.registered = False
        """Its own image shows this run (R10)."""
        self.stopping = False
        """It is told to stop."""
        if not self._formatted:
            self.format()
        reserve = Reserve(self.disk, ROOT, RESERVE_BYTES)
        reserve.restore()
        volume = self.disk.open_volume("/") if self.volume_flush else None
        self.hosted = Hosting(self, LogStore(self.disk, ROOT, volume=volume))
        self.flushing = Flushing(self, reserve)
        self.asking = Asking(self, self._quorums, CLUSTER_ID)
        self.links = Links(self)
        self.settling = Settling(self)
        log = open_raft_log(self.disk, RAFT, same_boot=self.raft_same_boot, reserve=reserve)
        self.quorum = Quorum(
            self.world,
            self.network,
            self._quorums,
            Voter(self.id, self.directory_id),
            log,
            self.world.rng_of(f"raft {self.id} {self.run}"),
            voters_wanted=self._voters_wanted,
            times=FAST_TIMES if self.fast_raft else TIMES,
            disk_delay=self.write_delay,
            alive=self._alive_check(),
            applied=self._imaged,
            checks=self.checks,
        )
        self.image = self.quorum.image
        self._quorums[self.id] = self.quorum
        self.world.tell(
            f"broker {self.id} starts, run {self.run}{'' if self.same_boot else ', after a power loss'}"
        )
        self._every(FAST_TICK_US if self.fast_raft else TICK_US, self._tick)
        self._every(HEARTBEAT_US, self.asking.heartbeat)
        self._every(CHECKPOINT_US, self.flushing.checkpoint)
        if self.scrubs:
            self._every(SCRUB_US, self.hosted.scrub)

    def crash(self, *, power: bool) -> None:
        """The process ends now; `power`: and the page cache with it."""
        self.running = False
        self._quorums.pop(self.id, None)
        self.checks.crashed(self)
        self.checks.strays_kept(self)
        before = self.disk
        self.disk = before.crash(self.rng) if power else before.copy()
        if power:
            self.checks.power_lost(self, before)
        # A boot is the same only for what a run of it has judged before (2b).
        self.same_boot = not power and (self.same_boot or self._opened)
        self.raft_same_boot = not power
        self.world.tell(f"broker {self.id} {'loses power' if power else 'is killed'}")
        self.network.ended(self.id)

    # --- time

    @property
    def now_ms(self) -> int:
        return self.world.now // MS

    @property
    def clock_us(self) -> int:
        return T0_US + self.world.now + self.skew_us

    def write_delay(self) -> int:
        return self.rng.randint(*self.disk_us)

    def _alive_check(self) -> Callable[[], bool]:
        run = self.run
        return lambda: self.running and self.run == run

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Unless this run ends before."""
        alive = self._alive_check()
        self.world.after(delay_us, lambda: action() if alive() else None)

    def _every(self, period_us: int, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.after(period_us, again)

        self.after(self.rng.randint(1, period_us), again)

    def _tick(self) -> None:
        self.quorum.tick()
        self._progress()
        for replica in list(self.replicas.values()):
            replica.tick()
        self.settling.look()

    @property
    def replicas(self) -> dict[Key, Replica]:
        return self.hosted.replicas

    # --- becoming a member

    def _progress(self) -> None:
        """The next step of a start, if it can be taken."""
        node = self.quorum.node
        if self._opening:
            return
        current = node.leader is not None and node.log.term(node.log.commit) == node.term
        if node.log.last_index == 0:
            self._opening = True
            self._open()
        elif current and self.quorum.applied == node.log.commit:
            self._opening = True
            this_run = self._alive_check()
            # The answer to a question of the run before may come to this one.
            self.asking.confirm(lambda: self._open() if this_run() else None)

    def _open(self) -> None:
        """What the image places here by now was perhaps here before; what it places later was not (2d)."""
        self._opened = True
        self.image = self.quorum.image
        self.hosted.open_all(self.image)
        self.asking.register()

    def _imaged(self, before: ClusterImage, image: ClusterImage) -> None:
        self.image = image
        if not self._opened:
            return
        known = image.brokers.get(self.id)
        if known is None or known.incarnation != self.incarnation:
            return
        changed = [pair[1:] for pair in image.streams.changes(before.streams)]
        if not self.registered:
            self.registered = True
            self.world.tell(f"broker {self.id} is registered")
            self.hosted.registered(image)
            changed += [(None, stream) for stream in image.streams.values()]
        for old, stream in changed:
            if stream is not None:
                self.hosted.apply(image, stream)
            elif old is not None:
                self.hosted.deleted(old)
        if before.brokers is not image.brokers:
            for stream in image.streams.values():
                self.hosted.apply(image, stream)

    # --- what it says to those who ask in vain

    def not_leader(self, key: Key) -> TidelogError:
        partition = self.image.partition(*key)
        leader = None if partition is None else partition.leader
        return NotLeader("not here", **({} if leader is None else {"leader": leader}))

    def not_enough(self) -> TidelogError:
        return NotEnoughReplicas("too few in sync")

    def unknown_here(self, key: Key) -> Refused:
        partition = self.image.partition(*key)
        return Refused(Refusal.NOT_LEADER, 0 if partition is None else partition.leader_epoch)
