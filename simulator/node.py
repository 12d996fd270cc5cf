"""A simulated machine with a disk, and the production broker on it (`service`), with its replicas.

The broker runs in a process (`kernel.processes`) that can be killed, lose its power, or end without a fault;
then the run starts it again, as a supervisor does. Only what is below the broker is simulated: the event
loop, the threads, the sockets, the disk and the clocks. `cluster` has all nodes of a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from simulator.disk import FakeDisk, Operation
from simulator.kernel.network import Network
from simulator.kernel.processes import Process
from simulator.rpc.server import CallObserver
from simulator.service import CLIENT_PORT, PEER_PORT, Service, host_of
from simulator.world import T0_US, World
from tidelog_broker.assembly import Assembly
from tidelog_broker.config.settings import Settings
from tidelog_broker.core.metadata.image import PartitionImage
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.platform import Platform
from tidelog_broker.service import run_until
from tidelog_broker.storage.files.volume_flush import Judgement
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.tail_cache import TAIL_CACHE_BYTES_MAX
from tidelog_broker.writing.partition import Partition

ROOT: Final = "/data"
CLUSTER_ID: Final = b"simulated-cluste"
Key = tuple[bytes, int]
"""The stream id and the partition."""

RESERVE_BYTES: Final = 64 << 10
SEGMENT_BYTES: Final = 8 << 10

RAFT_SEGMENT_BYTES: Final = 512
"""For the metadata log in runs with `snapshot_entries`: small, so that entries are removed soon."""

STALLED_US: Final = 50_000
"""A disk whose work takes at least this long is a stalled disk."""


@dataclass(frozen=True)
class NodeSettings:
    """The settings of a broker in which runs differ."""

    seeds: tuple[int, ...]
    """Brokers that it asks for the cluster."""
    voters: int = 3
    tail_cache_bytes: int = TAIL_CACHE_BYTES_MAX
    volume_flush: bool = False
    """Logs are made durable by one flush of the whole disk (4.3)."""
    scrub_bytes_per_second: int = 0
    snapshot_entries: int = 0
    """Entries of the metadata log after which it takes a snapshot; 0: the default."""
    nats: str = ""
    """Addresses of NATS servers; empty: none."""


class Node:
    """A machine, its disk, and the broker process on it."""

    def __init__(
        self,
        world: World,
        network: Network,
        broker_id: int,
        settings: NodeSettings,
        *,
        skew_us: int,
        disk_us: tuple[int, int],
        observer: Callable[[Node], CallObserver],
        observed: Callable[[Node], None],
        ended: Callable[[Node, BaseException | int], None],
        removes: Callable[[Node, str], None],
    ) -> None:
        """`skew_us`: how far its wall clock is off. `disk_us`: how long a piece of work in a thread takes, at
        least and at most. `observed` is called after each event in its process; `ended` when the process ends
        without a fault: with an exit code, or the error of its start; `removes` before a file or folder is
        removed from its disk."""
        self._observer = observer(self)
        self._observed = observed
        self._told_ended = ended
        self._removes = removes
        self.world = world
        self.id = broker_id
        self._network = network
        self.settings = settings
        self.machine = network.machine(host_of(broker_id))
        self.rng: random.Random = world.rng_of(f"node {broker_id}")
        self.disk = FakeDisk()
        self.disks = 1
        self.boots = 1
        self.run = 0
        self.started_us = 0
        self.skew_us = skew_us
        self.disk_us = disk_us
        self.process: Process | None = None
        """None: it is down."""
        self.service: Service | None = None
        self.stop_asked = False
        self.replicas: dict[Key, Replica] = {}
        """The replicas that it serves, as they were when `watch` looked last."""
        self._opened: Assembly | None = None
        """The newest that has opened its data directory."""
        self.incarnation = b""
        """The incarnation of the run that opened the data directory last."""
        self.directory_id = b""
        """The id of that data directory; empty: the disk is new."""
        self.same_boot = True
        """That run found the page cache of the run before it."""

    def __repr__(self) -> str:
        state = "down" if self.process is None else "up"
        return f"<Node {self.id} run={self.run} {state} {self.broker!r}>"

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def assembly(self) -> Assembly | None:
        """None: the broker is down, or its data directory is not open yet."""
        return None if self.service is None else getattr(self.service, "assembly", None)

    @property
    def broker(self) -> Broker | None:
        return None if self.assembly is None else self.assembly.broker

    def opened(self, assembly: Assembly) -> bool:
        """Notes that a run has opened its data directory. False: that is known already."""
        if self._opened is assembly:
            return False
        self._opened = assembly
        self.incarnation = assembly.controller.incarnation
        self.directory_id = assembly.directory.directory_id
        self.same_boot = assembly.directory.same_boot
        if self.settings.snapshot_entries:
            driver = assembly.controller._driver
            driver._snapshot_entries = self.settings.snapshot_entries
            driver._snapshot_due = driver.log.snapshot_index + self.settings.snapshot_entries
            # A snapshot removes whole segments.
            driver.log._segment_bytes = RAFT_SEGMENT_BYTES
        return True

    @property
    def controls(self) -> bool:
        """The broker leads the metadata quorum, and knows it."""
        return self.assembly is not None and self.assembly.controller.active is not None

    # --- its disk

    def format_cluster(self) -> None:
        """Formats the data directory of the first broker and only voter of a new cluster (M1)."""
        format_solo(
            self.disk, ROOT,
            cluster_id=CLUSTER_ID, broker_id=self.id, directory_id=self.rng.randbytes(16),
        )  # fmt: skip

    def new_disk(self) -> None:
        """Replaces the disk by an empty one."""
        self.replace_disk(FakeDisk())
        self.directory_id = b""

    def replace_disk(self, disk: FakeDisk) -> None:
        """Puts another disk in the place of this one."""
        self.disk = disk
        self.disks += 1

    # --- its process

    def start(self) -> None:
        """Starts a new run of the broker."""
        assert self.process is None, "it is down"
        self.run += 1
        self.started_us = self.world.now
        self.stop_asked = False
        if not self.machine.powered:
            self._network.power_is_back(self.machine)
        self.disk.before = self._before
        self.disk.died = self._alarm
        name = f"broker {self.id} run {self.run}"
        process = self.process = Process(
            self.world, self._network, self.machine, name, self.disk, lambda: self.disk_us, self._observe
        )
        service = self.service = Service(self._broker_settings(), self._platform(process), self._observer)
        stop = process.event()
        self._stop = stop
        self.world.tell(f"{name} starts")
        process.run(run_until(service, stop), self._ended)  # type: ignore[arg-type]

    def ask_to_stop(self) -> None:
        """Sends SIGTERM."""
        if self.process is not None:
            self.stop_asked = True
            self.process.loop.call_soon(self._stop.set)

    def crash(self, *, power: bool) -> None:
        """Ends the process now. `power`: the machine loses its power, and the disk the page cache."""
        process = self.process
        assert process is not None, "it runs"
        self.process = self.service = None
        self.replicas = {}
        before = self.disk
        self.disk = before.crash(self.rng) if power else before.copy()
        if power:
            self.boots += 1
            self.machine.powered = False
        process.kill()
        self.world.tell(f"broker {self.id} {'loses power' if power else 'is killed'}")

    def stall(self, until_us: int) -> None:
        """Pauses the process until then."""
        if self.process is not None:
            self.process.loop.stalled_until = until_us

    def slow_disk(self, until_us: int) -> None:
        """Makes all work of threads slow until then."""
        usual, self.disk_us = self.disk_us, (STALLED_US, 1_000_000)
        if usual == self.disk_us:
            return

        def over() -> None:
            self.disk_us = usual

        self.world.after(until_us - self.world.now, over)

    def _before(self, operation: Operation) -> None:
        if operation.name == "remove":
            self._removes(self, operation.path)
        process = self.process
        if process is not None and not self.world.in_thread and self.disk_us[0] >= STALLED_US:
            # The event loop itself uses the disk here, so it pauses until the disk has done this callback.
            process.loop.hold(self.rng.randint(*self.disk_us))

    def _alarm(self) -> None:
        self.world.alarmed = True

    def _observe(self) -> None:
        # A dead disk has met its crash point. The run ends the process (`steps`).
        if self.process is not None and not self.disk.dead:
            self._observed(self)

    def _ended(self, how: BaseException | int) -> None:
        process, self.process, self.service = self.process, None, None
        assert process is not None
        self.replicas = {}
        self.disk = self.disk.copy()
        process.kill()
        self.world.tell(f"broker {self.id} has ended: {how if isinstance(how, int) else repr(how)}")
        self._told_ended(self, how)

    # --- its settings and its platform

    def clock_us(self) -> int:
        return T0_US + self.world.now + self.skew_us

    def _platform(self, process: Process) -> Platform:
        rng = self.world.rng_of(f"broker {self.id} run {self.run}")
        return Platform(
            files=self.disk,
            clock=self.clock_us,
            elapsed=lambda: max(self.world.now, process.loop.stalled_until),
            rng=rng,
            new_id=lambda: rng.randbytes(16),
            threads=process.threads,
            boot_id=lambda: f"boot {self.boots}",
            lock=lambda path: lambda: None,
            judge_volume=lambda wish, path: Judgement(self.settings.volume_flush, "as the plan says"),
        )

    def _broker_settings(self) -> Settings:
        return Settings(
            data_dir=Path(ROOT),
            broker_id=self.id,
            listeners=[f"internal={host_of(self.id)}:{CLIENT_PORT}"],
            http="",
            insecure=True,
            peer_listener=f"{host_of(self.id)}:{PEER_PORT}",
            seeds=",".join(f"{host_of(seed)}:{PEER_PORT}" for seed in self.settings.seeds),
            voters=self.settings.voters,
            nats=self.settings.nats,
            disk_reserve_bytes=RESERVE_BYTES,
            sweep_interval_ms=1_000,
            deleted_delay_ms=500,
            page_cache_flush_interval_ms=1_000,
            scrub_bytes_per_second=self.settings.scrub_bytes_per_second,
            scrub_interval_ms=1_000,
            tail_cache_bytes_max=self.settings.tail_cache_bytes,
        )


class Looks(NamedTuple):
    """The state of a replica at one look."""

    role: LeaderPartition | FollowerPartition | None
    high_watermark: int
    start_offset: int
    end_offset: int
    durable_offset: int
    damaged: int
    """How many ranges cannot be read."""


class Replica:
    """A replica on a simulated broker, as checks and faults look at it; `partition` is the broker's own."""

    __slots__ = ("looks", "node", "partition")

    def __init__(self, node: Node, partition: Partition) -> None:
        self.node = node
        self.partition = partition
        self.looks: Looks | None = None
        """The state at the last look; None: there was none yet."""

    def __repr__(self) -> str:
        return f"<Replica on {self.node.id} {self.partition!r}>"

    @property
    def key(self) -> Key:
        return self.partition.key

    @property
    def name(self) -> str:
        return f"{self.partition.name}/{self.partition.partition}"

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    @property
    def role(self) -> LeaderPartition | FollowerPartition | None:
        return self.partition.replica.role

    @property
    def leads(self) -> bool:
        return isinstance(self.partition.replica.role, LeaderPartition)

    @property
    def fsync(self) -> bool:
        return self.partition.replica.fsync

    @property
    def placed(self) -> PartitionImage:
        return self.partition.replica.placed

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark

    def now(self) -> Looks:
        partition = self.partition
        role, log = partition.replica.role, partition.log
        reached = partition.high_watermark if role is None else role.high_watermark
        return Looks(role, reached, log.start_offset, log.end_offset, log.durable_offset, len(log.damaged))
