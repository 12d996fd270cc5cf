"""What kind of run a seed gives: how many brokers, which clients, which faults at all (swarm testing).

A run that has every fault all the time never gets far; one that has few of them, often, does. So each
seed switches most of them off.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from simulator.network import Conditions, random_conditions
from simulator.world import SECOND

EVENTS_MIN: Final = 10_000
EVENTS_LONG: Final = 40_000
LONG_EVERY: Final = 5
"""One seed in so many is long."""


@dataclass(frozen=True)
class StreamPlan:
    partitions: int
    replication_factor: int
    min_insync: int
    fsync: bool


@dataclass(frozen=True)
class Plan:
    """See the module. Rates are per simulated second."""

    seed: int
    brokers: int
    voters: int
    streams: tuple[StreamPlan, ...]
    producers: int
    readers: int
    produce_pause_us: int
    network: Conditions
    kills: float = 0.0
    power_losses: float = 0.0
    everybody: float = 0.0
    """All brokers at once: killed, or without power."""
    cuts: float = 0.0
    one_way: bool = False
    disk_losses: float = 0.0
    slow_disks: bool = False
    skew_us: int = 0
    double_crashes: float = 0.0
    """Killed, and without power right after it is back."""
    election_kills: float = 0.0
    """Probability that an election costs somebody his process."""
    late_copies: float = 0.0
    """Probability that a proposal of an ISR is delivered again, seconds later."""
    fast_raft: bool = False
    """Ticks of 2 ms and hasty candidates: elections collide, as they seldom do."""
    restart_us: int = 5_000
    """How soon whoever fell in an election is back, at most."""
    cut_us: tuple[int, int] = (SECOND // 5, 4 * SECOND)
    stops: float = 0.0
    """A broker wants to stop, and is started again."""
    start_moves: float = 0.0
    """The log start offset of a partition moves (DeleteRecords)."""
    minimum_changes: float = 0.0
    down_us: tuple[int, int] = (SECOND // 5, 3 * SECOND)
    """How long a broker stays away."""
    events: int = EVENTS_MIN
    faults: list[str] = field(default_factory=list)
    """By name, for people."""


def plan_of(seed: int) -> Plan:
    rng = random.Random(f"plan {seed}")
    fast_raft = rng.random() < 0.2
    brokers = rng.choice((3, 3, 5)) if fast_raft else rng.choice((3, 3, 3, 4, 5, 7))
    streams = tuple(
        StreamPlan(
            partitions=rng.choice((1, 1, 2)),
            replication_factor=factor,
            min_insync=rng.choice((1, 2, 2, 2, 3, 3)) if factor >= 3 else rng.choice((1, 2)),
            fsync=rng.random() < 0.65,
        )
        for factor in (rng.choice((2, 3, 3, 3, min(5, brokers))) for _ in range(rng.choice((1, 1, 2))))
    )
    rates = {
        "kills": 30.0 if fast_raft else rng.choice((0.0, 0.3, 1.0, 3.0, 10.0)),
        "power_losses": rng.choice((0.0, 0.3, 2.0)),
        "everybody": rng.choice((0.0, 0.0, 0.3)),
        "cuts": rng.choice((0.0, 0.0, 0.5, 3.0)),
        "disk_losses": rng.choice((0.0, 0.0, 0.3, 2.0)),
        "double_crashes": rng.choice((0.0, 0.0, 1.0)),
        "election_kills": 0.7 if fast_raft else rng.choice((0.0, 0.0, 0.5, 0.9)),
        "stops": rng.choice((0.0, 0.0, 0.5)),
        "start_moves": rng.choice((0.0, 0.0, 1.0)),
        "minimum_changes": rng.choice((0.0, 0.0, 2.0)),
    }
    return Plan(
        seed=seed,
        brokers=brokers,
        voters=rng.choice((3, 3, 5 if brokers >= 5 else 3, 3 if fast_raft else 1)),
        streams=streams,
        producers=1 if fast_raft else rng.choice((1, 2, 3, 3)),
        readers=1,
        produce_pause_us=rng.choice((500, 2_000, 10_000)),
        network=replace(random_conditions(rng), delay_us=(200, 3_000), lost=rng.choice((0.05, 0.3)))
        if fast_raft
        else random_conditions(rng),
        fast_raft=fast_raft,
        late_copies=rng.choice((0.0, 0.3, 0.9)),
        restart_us=rng.choice((200, 1_000, 5_000)),
        cut_us=rng.choice(((SECOND // 20, SECOND), (SECOND // 5, 4 * SECOND), (2 * SECOND, 8 * SECOND))),
        one_way=rng.random() < 0.5,
        slow_disks=rng.random() < 0.3,
        skew_us=rng.choice((0, 0, 2 * SECOND)),
        down_us=(200, SECOND // 50)
        if fast_raft
        else rng.choice(
            (
                (SECOND // 50, SECOND // 5),
                (SECOND // 20, SECOND // 2),
                (SECOND // 5, 3 * SECOND),
                (SECOND, 8 * SECOND),
            )
        ),
        events=EVENTS_LONG if seed % LONG_EVERY == 0 else EVENTS_MIN,
        faults=[name for name, rate in rates.items() if rate],
        **rates,
    )
