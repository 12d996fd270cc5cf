"""A simulated broker: its life, its disk, and the parts that perform the rules.

It starts as a broker does: Raft first; when the image is current, the logs; then it registers, and leads
and follows once its own image shows the run that registered (R10). A crash ends it between two events; what
its disk keeps of that is `disk`'s.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final

from simulator.checks import Checks
from simulator.disk import FakeDisk
from simulator.links import Links
from simulator.network import Network
from simulator.quorum import FAST_TICK_US, FAST_TIMES, TICK_US, TIMES, Quorum
from simulator.replica import Key, Replica
from simulator.requests import (
    ChangeIsr,
    Denied,
    Done,
    Heartbeat,
    LoseReplica,
    Register,
    Report,
    Request,
    Response,
)
from simulator.world import MS, World
from tidelog.errors import NotEnoughReplicas, NotLeader, TidelogError
from tidelog.model import Durability
from tidelog_broker.core.metadata.commands import FormatCluster, ReplicaName, Suspect, encode_command
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.core.metadata.isr_changes import IsrProposal
from tidelog_broker.core.metadata.registration import Registration
from tidelog_broker.core.metadata.reports import Evidence
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.core.replication.messages import Refusal, Refused
from tidelog_broker.core.replication.times import ReplicationTimes
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter
from tidelog_broker.storage.log import LogConfig
from tidelog_broker.storage.raft_log import create_raft_log
from tidelog_broker.storage.raft_recovery import open_raft_log
from tidelog_broker.storage.reserve import Reserve
from tidelog_broker.storage.store import LogStore, Wanted

ROOT: Final = "/data"
RAFT: Final = f"{ROOT}/raft"
CLUSTER_ID: Final = b"simulated-cluste"
T0_US: Final = 1_767_225_600_000_000

HEARTBEAT_US: Final = 250 * MS
ASK_US: Final = 100 * MS
"""After so long without an answer a request goes to another broker."""
CHECKPOINT_US: Final = 1000 * MS
BACKGROUND_US: Final = (200 * MS, 3000 * MS)
"""How long a `page-cache` stream waits for its flush; in a broker it is longer."""
SEGMENT_BYTES: Final = 8 << 10
RESERVE_BYTES: Final = 4 << 10


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
            Entry(2, 1, EntryType.COMMAND, encode_command(FormatCluster(CLUSTER_ID))),
        ))  # fmt: skip

    def start(self) -> None:
        """A new run."""
        self.run += 1
        self.starts += 1
        self.running = True
        self.started_us = self.world.now
        self.incarnation = f"broker{self.id:03} run{self.run:03}".encode()[:16].ljust(16)
        self.image = ClusterImage()
        self.replicas: dict[Key, Replica] = {}
        self.store: LogStore = LogStore(self.disk, ROOT)
        self.links = Links(self)
        self._opened = False
        self._registered = False
        self._asked: dict[int, tuple[Request, Callable[[Response], None]]] = {}
        self._dirty: dict[Replica, None] = {}
        self._written: dict[Replica, None] = {}
        """`page-cache` streams with something that is not flushed."""
        self._flushing = False
        self.stopping = False
        self._lost: list[ReplicaName] = []
        if not self._formatted:
            self.format()
        reserve = Reserve(self.disk, ROOT, RESERVE_BYTES)
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
        self._every(HEARTBEAT_US, self._heartbeat)
        self._every(CHECKPOINT_US, lambda: self.save_checkpoints(self.replicas.values()))

    def crash(self, *, power: bool) -> None:
        """The process ends now; `power`: and the page cache with it."""
        self.running = False
        self._quorums.pop(self.id, None)
        self.checks.crashed(self)
        self.disk = self.disk.crash(self.rng) if power else self.disk.copy()
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

    # --- becoming a member

    def _progress(self) -> None:
        """The next step of a start, if it can be taken."""
        node = self.quorum.node
        if not self._opened:
            empty = node.log.last_index == 0
            current = node.leader is not None and node.log.term(node.log.commit) == node.term
            if empty or (current and self.quorum.applied == node.log.commit):
                self._open_logs()
                self._register()

    def _open_logs(self) -> None:
        self._opened = True
        self.image = self.quorum.image
        wanted = [want for stream in self.image.streams.values() for want in self._placed(stream)]
        opened = self.store.open_all(wanted, same_boot=self.same_boot)
        for lost in opened.lost:
            self._lost.append(ReplicaName(lost.wanted.stream_id, lost.wanted.partition))
            self.world.tell(
                f"broker {self.id} lost {lost.wanted.name}/{lost.wanted.partition}: {lost.reason}"
            )
        for key, log in opened.logs.items():
            stream = self.image.streams[key[0]]
            hw = self.store.checkpoints.high_watermark(key)
            if not self.same_boot and stream.config.durability is Durability.PAGE_CACHE:
                # Durably, because this run may end before anybody was told (R6).
                log.mark_suspect("the machine stopped, and what was written last may be lost")
            self.replicas[key] = Replica(self, stream, key[1], log, hw)
            self.checks.opened(self.replicas[key])

    def _placed(self, stream: StreamImage) -> list[Wanted]:
        config = LogConfig(segment_bytes=SEGMENT_BYTES)
        return [
            Wanted(stream.name, stream.id, number, config)
            for number, partition in enumerate(stream.partitions)
            if self.id in partition.replicas
        ]

    def _register(self) -> None:
        suspects = [
            Suspect(*key, last_epoch(replica.log) or 0, replica.log.end_offset)
            for key, replica in self.replicas.items()
            if replica.log.suspect
        ]
        asked = Registration(
            cluster_id=CLUSTER_ID,
            broker_id=self.id,
            incarnation=self.incarnation,
            directory_id=self.directory_id,
            starts=self.starts,
            suspects=tuple(suspects),
            lost=tuple(self._lost),
        )

        def answered(response: Response) -> None:
            if isinstance(response, Denied):
                self.world.tell(f"broker {self.id} may not register: {response.reason}")

        self.ask(Register(asked), answered)

    # --- the image

    def _imaged(self, before: ClusterImage, image: ClusterImage) -> None:
        self.image = image
        self.checks.imaged(self, image)
        if not self._opened:
            return
        known = image.brokers.get(self.id)
        if known is None or known.incarnation != self.incarnation:
            return
        if not self._registered:
            self._registered = True
            self.world.tell(f"broker {self.id} is registered")
            for replica in self.replicas.values():
                if replica.log.suspect:
                    # The image says it now, until it is in sync again.
                    replica.log.clear_suspect()
        for _, old, stream in image.streams.changes(before.streams):
            del old
            if stream is not None:
                self._apply(image, stream)
        if before.brokers is not image.brokers:
            for stream in image.streams.values():
                self._apply(image, stream)

    def _apply(self, image: ClusterImage, stream: StreamImage) -> None:
        for want in self._placed(stream):
            key = (want.stream_id, want.partition)
            replica = self.replicas.get(key)
            if replica is None:
                replica = Replica(self, stream, want.partition, self.store.create(want), 0)
                self.replicas[key] = replica
                self.checks.opened(replica)
            replica.imaged(image, stream)
        for number, partition in enumerate(stream.partitions):
            gone = self.replicas.get((stream.id, number))
            if gone is not None and self.id not in partition.replicas:
                gone.removed = True
                gone._end_role()
                del self.replicas[gone.key]
                self.store.remove_replica(gone.log)
                self.checks.removed(gone)

    # --- asking the controller

    def ask(self, request: Request, answered: Callable[[Response], None], *, once: bool = False) -> None:
        """Asks until there is a decision; with `once` a single time, answered or not."""
        target = self._controller_of()
        done = [False]

        def deliver() -> None:
            quorum = self._quorums.get(target)
            if quorum is None:
                return
            quorum.ask(request, lambda response: self.network.send(target, self.id, lambda: came(response)))

        def came(response: Response) -> None:
            if done[0]:
                return
            done[0] = True
            if isinstance(response, Done | Denied):
                answered(response)
            elif not once:
                self.after(self.rng.randint(20 * MS, ASK_US), lambda: self.ask(request, answered))

        def silent() -> None:
            if not done[0]:
                done[0] = True
                self.ask(request, answered)

        self.network.send(self.id, target, deliver)
        if not once:
            self.after(ASK_US * 3, silent)

    def _controller_of(self) -> int:
        leader = self.quorum.node.leader
        if leader is not None and leader.broker_id in self.others:
            return leader.broker_id
        return self.rng.choice(sorted(self.others))

    def _heartbeat(self) -> None:
        if not self._registered:
            return

        def answered(response: Response) -> None:
            if not isinstance(response, Done):
                self._register()

        self.ask(Heartbeat(self.id, self.incarnation, self.stopping), answered, once=True)

    def propose_isr(self, proposal: IsrProposal) -> None:
        """Whatever the answer, the image decides (R4)."""
        self.ask(ChangeIsr(proposal), lambda response: None, once=True)
        if self.rng.random() < self.late_copies:
            late = self.rng.randint(10 * MS, 3000 * MS)
            self.after(late, lambda: self.ask(ChangeIsr(proposal), lambda response: None, once=True))

    def report(self, broker: int, evidence: Evidence) -> None:
        known = self.image.brokers.get(broker)
        if known is not None and self._registered:
            self.world.tell(f"broker {self.id} reports {broker}: {evidence.value}")
            request = Report(self.id, self.incarnation, broker, known.incarnation, evidence)
            self.ask(request, lambda response: None, once=True)

    def quarantine(self, replica: Replica, reason: str) -> None:
        """R1: the replica contradicts its leader; it is set aside and made anew once the image says so."""
        self.world.tell(f"{replica.name} on {self.id} is quarantined: {reason}")
        self.checks.quarantined(replica)
        replica.quarantined = True
        self.ask(LoseReplica(self.id, self.incarnation, ReplicaName(*replica.key)), lambda response: None)

    # --- disk

    def wrote(self, replica: Replica) -> None:
        """An `fsync` stream is flushed at once, a `page-cache` stream by and by."""
        if replica.fsync:
            self.flush(replica)
        elif replica not in self._written:
            self._written[replica] = None
            self.after(self.rng.randint(*BACKGROUND_US), lambda: self._flush_written(replica))

    def _flush_written(self, replica: Replica) -> None:
        self._written.pop(replica, None)
        if not replica.removed:
            self.flush(replica)

    def flush(self, replica: Replica) -> None:
        """Group commit: everything that is written while one round runs is flushed by the next."""
        self._dirty[replica] = None
        if not self._flushing:
            self._begin_flush()

    def _begin_flush(self) -> None:
        self._flushing = True
        replicas, self._dirty = list(self._dirty), {}
        early = self.rng.random() < 0.5
        if early:
            self.store.sync(replica.log for replica in replicas if not replica.removed)

        def ended() -> None:
            if not early:
                self.store.sync(replica.log for replica in replicas if not replica.removed)
            self._flushing = False
            for replica in replicas:
                if not replica.removed:
                    self.checks.flushed(replica)
                    replica.flushed()
            if self._dirty and not self._flushing:
                self._begin_flush()

        self.after(self.write_delay(), ended)

    def save_checkpoints(self, replicas: Iterable[Replica]) -> None:
        self.store.save_checkpoints([(replica.log, replica.high_watermark) for replica in replicas])

    # --- what it says to those who ask in vain

    def not_leader(self, key: Key) -> TidelogError:
        partition = self.image.partition(*key)
        leader = None if partition is None else partition.leader
        return NotLeader("not here", **({} if leader is None else {"leader": leader}))  # type: ignore[arg-type]

    def not_enough(self) -> TidelogError:
        return NotEnoughReplicas("too few in sync")

    def unknown_here(self, key: Key) -> Refused:
        partition = self.image.partition(*key)
        return Refused(Refusal.NOT_LEADER, 0 if partition is None else partition.leader_epoch)
