"""The plan of a run: how many brokers, which clients, which faults, and how often each fault happens.

Neighbours: `swarm` draws plans by seed, `profiles` are variations of them, `simulator.run` performs one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.nats.plan import NatsPlan
from simulator.world import SECOND
from tidelog_broker.storage.log.tail_cache import TAIL_CACHE_BYTES_MAX

SECONDS: Final = 20.0
"""Simulated time under faults."""

EVENTS: Final = 30_000
"""The most events under faults. A busy cluster gets less simulated time, so that all runs cost about the
same."""

EVENTS_LONG: Final = 100_000
"""The most events under faults in a long run."""

RATES: Final = (
    "kills",
    "power_losses",
    "everybody",
    "cuts",
    "disk_losses",
    "double_crashes",
    "election_kills",
    "stops",
    "start_moves",
    "minimum_changes",
    "reassignments",
    "leader_moves",
    "leader_returns",
    "deletions",
    "rot",
    "full_disks",
    "mid_write_kills",
    "stalls",
    "strays",
    "failed_flushes",
    "failed_saves",
    "durability_changes",
    "retention_changes",
    "setting_changes",
    "clock_jumps",
    "put_backs",
    "file_rot",
    "renewals",
    "recoveries",
    "lost_followers",
)
"""The rates of a plan, which may be 0."""


@dataclass(frozen=True)
class StreamPlan:
    """A stream of a run."""

    partitions: int
    replication_factor: int
    min_insync: int
    fsync: bool
    subject: str = ""
    """The NATS subjects that it records; empty: none."""


@dataclass(frozen=True)
class Plan:
    """The plan of one run. Rates are per simulated second."""

    seed: int
    brokers: int
    voters: int
    streams: tuple[StreamPlan, ...]
    producers: tuple[Kind, ...]
    """The producers of each partition. The third one uses acks=leader."""
    readers: int
    produce_pause_us: int
    network: Conditions
    sinks: int = 0
    """Jobs with a sink, for each partition."""
    impatient: float = 0.0
    """Probability that a producer's delivery timeout is shorter than its request timeout. Such a producer
    achieves little while brokers are down for long."""
    kills: float = 0.0
    power_losses: float = 0.0
    everybody: float = 0.0
    """All brokers at once are killed or lose power."""
    cuts: float = 0.0
    one_way: bool = False
    disk_losses: float = 0.0
    slow_disks: bool = False
    volume_flush: bool = False
    """A flush round is one flush of the whole disk (DESIGN 4.3)."""
    skew_us: int = 0
    double_crashes: float = 0.0
    """A broker is killed, and its machine loses power right after the restart."""
    election_kills: float = 0.0
    """Probability that a broker's process ends during an election."""
    fast_raft: bool = False
    """Processes end all the time, in the middle of elections, so that elections collide often."""
    restart_us: int = 5_000
    """The longest time until a broker that ended in an election starts again."""
    cut_us: tuple[int, int] = (SECOND // 5, 4 * SECOND)
    stops: float = 0.0
    """A broker is stopped in good order, and started again."""
    start_moves: float = 0.0
    """The log start offset of a partition moves (DeleteRecords)."""
    minimum_changes: float = 0.0
    """The minimum of in-sync replicas of a stream changes."""
    reassignments: float = 0.0
    """Replicas move to other brokers."""
    leader_moves: float = 0.0
    """Leadership moves without need."""
    leader_returns: float = 0.0
    """Leadership moves away and back at once, while answers of the first epoch are on their way."""
    deletions: float = 0.0
    """A stream is created, written to or deleted."""
    rot: float = 0.0
    """A bit of a cold segment is flipped."""
    full_disks: float = 0.0
    """A disk is full for a while."""
    mid_write_kills: float = 0.0
    """A process ends in the middle of a thread's work on the disk."""
    stalls: float = 0.0
    """A process pauses for a while, or its disk is slow for a while."""
    strays: float = 0.0
    """A folder is misplaced on the disk of a broker that is down."""
    failed_flushes: float = 0.0
    """A flush fails (4.3)."""
    failed_saves: float = 0.0
    """A write of the log start offsets fails."""
    snapshot_entries: int = 0
    """Entries of the metadata log after which a snapshot is taken; 0: the default."""
    durability_changes: float = 0.0
    """A stream changes between `page-cache` and `fsync` (R17)."""
    retention_changes: float = 0.0
    """The retention of a stream changes."""
    setting_changes: float = 0.0
    """Sizes of segments and batches change, or the age at which a segment is closed."""
    clock_jumps: float = 0.0
    """One broker's clock is wrong by hours or days for a while (R18)."""
    put_backs: float = 0.0
    """A volume is copied, or put back from an earlier copy (R19)."""
    file_rot: float = 0.0
    """A bit of a file that is no segment is flipped."""
    renewals: float = 0.0
    """A stream is deleted and created again under its name, while clients use it."""
    recoveries: float = 0.0
    """The metadata continues by force from the log of one voter (M2a)."""
    lost_followers: float = 0.0
    """A leader loses a follower until it proposes to remove it from the ISR, and then loses its
    controller."""
    vote_kills: float = 0.0
    """Probability that a voter's process ends when it gives its vote."""
    tail_cache_bytes: int = TAIL_CACHE_BYTES_MAX
    """Bytes of recent batches that a broker keeps in memory; 0: it reads all from the disk."""
    down_us: tuple[int, int] = (SECOND // 5, 3 * SECOND)
    """How long a broker stays down, at least and at most."""
    nats: NatsPlan | None = None
    """None: no NATS."""
    seconds: float = SECONDS
    """How long faults happen, at most."""
    events_max: int = EVENTS
    """The most events under faults."""
    faults: list[str] = field(default_factory=list)
    """The names of the rates that are not 0, to be printed."""
