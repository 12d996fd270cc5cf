"""What kind of run it is: how many brokers, which clients, which faults, and how often each.

Neighbours: `swarm` draws plans by seed, `profiles` are variations of them, `run` follows one.
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
"""Of simulated time under faults."""

EVENTS: Final = 30_000
"""That happen under faults: a busy cluster gets less time, so that a run costs about as much as any other."""

EVENTS_LONG: Final = 100_000
"""In a long run."""

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
"""What a plan may have none of."""


@dataclass(frozen=True)
class StreamPlan:
    partitions: int
    replication_factor: int
    min_insync: int
    fsync: bool
    subject: str = ""
    """The NATS subject that it records; empty: none."""


@dataclass(frozen=True)
class Plan:
    """See the module. Rates are per simulated second."""

    seed: int
    brokers: int
    voters: int
    streams: tuple[StreamPlan, ...]
    producers: tuple[Kind, ...]
    """Per partition; the third, if there is one, asks for acks=leader."""
    readers: int
    produce_pause_us: int
    network: Conditions
    impatient: float = 0.0
    """Probability that a producer gives batches up before its requests, and so does little where brokers are
    without power for long."""
    kills: float = 0.0
    power_losses: float = 0.0
    everybody: float = 0.0
    """All brokers at once: killed, or without power."""
    cuts: float = 0.0
    one_way: bool = False
    disk_losses: float = 0.0
    slow_disks: bool = False
    volume_flush: bool = False
    """Flush rounds are one flush of the whole disk (DESIGN 4.3)."""
    skew_us: int = 0
    double_crashes: float = 0.0
    """Killed, and without power right after it is back."""
    election_kills: float = 0.0
    """Probability that an election costs somebody his process."""
    fast_raft: bool = False
    """Processes end all the time, in the middle of elections, so that these collide as they seldom do."""
    restart_us: int = 5_000
    """How soon whoever fell in an election is back, at most."""
    cut_us: tuple[int, int] = (SECOND // 5, 4 * SECOND)
    stops: float = 0.0
    """A broker wants to stop, and is started again."""
    start_moves: float = 0.0
    """The log start offset of a partition moves (DeleteRecords)."""
    minimum_changes: float = 0.0
    reassignments: float = 0.0
    """Replicas move to other brokers."""
    leader_moves: float = 0.0
    """Leadership moves without need."""
    leader_returns: float = 0.0
    """Leadership moves, and is back at once, while answers of the first epoch are on their way."""
    deletions: float = 0.0
    """A stream is created, written to or deleted."""
    rot: float = 0.0
    """A bit of a cold segment turns over."""
    full_disks: float = 0.0
    mid_write_kills: float = 0.0
    """A process ends in the middle of what a thread does to the disk."""
    stalls: float = 0.0
    """A process stands still for a while, or its disk is slow for as long."""
    strays: float = 0.0
    """Folders are moved about on the disk of a broker that is down."""
    failed_flushes: float = 0.0
    """A disk does not take what it is to flush (4.3)."""
    failed_saves: float = 0.0
    """A disk does not take where logs begin."""
    snapshot_entries: int = 0
    """Entries of the metadata log after which a snapshot is taken; 0: as many as users have."""
    durability_changes: float = 0.0
    """A stream changes between `page-cache` and `fsync` (R17)."""
    retention_changes: float = 0.0
    """A stream keeps records for another time, or other amounts of them."""
    setting_changes: float = 0.0
    """Sizes of segments and batches change, or the age at which a segment is closed."""
    clock_jumps: float = 0.0
    """One broker's clock is wrong by hours or days for a while (R18)."""
    put_backs: float = 0.0
    """A volume is copied, or put back from an earlier copy (R19)."""
    file_rot: float = 0.0
    """A bit of a file that is no segment turns over."""
    renewals: float = 0.0
    """A stream is deleted and made again under its name, while clients use it."""
    recoveries: float = 0.0
    """The metadata goes on by force from one voter's log (M2a)."""
    lost_followers: float = 0.0
    """A leader loses a follower until it wants that one out of its ISR, and then its controller."""
    vote_kills: float = 0.0
    """Probability that giving a vote costs the voter its process."""
    tail_cache_bytes: int = TAIL_CACHE_BYTES_MAX
    """Of recent batches that a broker keeps in memory; 0: everything is read from the disk."""
    down_us: tuple[int, int] = (SECOND // 5, 3 * SECOND)
    """How long a broker stays away."""
    nats: NatsPlan | None = None
    """None: no NATS."""
    seconds: float = SECONDS
    """How long faults rain, at most."""
    events_max: int = EVENTS
    """How much happens meanwhile, at most."""
    faults: list[str] = field(default_factory=list)
    """By name, for people."""
