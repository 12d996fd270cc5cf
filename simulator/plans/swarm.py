"""Draws the plan of a seed: how many brokers, which clients, and which faults (swarm testing).

A run with all faults all the time makes little progress; a run with a few frequent faults makes more. So each
seed switches most faults off.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from simulator.clients.producers import Kind
from simulator.kernel.wire import random_conditions
from simulator.plans.nats import draw
from simulator.plans.plan import EVENTS, EVENTS_LONG, SECONDS, Plan, StreamPlan
from simulator.plans.profiles.catalog import PROFILES
from simulator.world import SECOND
from tidelog_broker.storage.log.tail_cache import TAIL_CACHE_BYTES_MAX

SECONDS_LONG: Final = 60.0
LONG_EVERY: Final = 5
"""One seed of so many is long."""

TAIL_CACHES: Final = (TAIL_CACHE_BYTES_MAX, TAIL_CACHE_BYTES_MAX, 4 << 10, 0)
"""In some runs followers and readers get nearly all batches from the disk."""

FEW_EVERY: Final = 8
"""One seed of so many has at most two kinds of faults: a failure there is easy to understand."""

VOLUME_FLUSH_EVERY: Final = 4
"""In one seed of so many, a flush round is one flush of the whole disk."""

MORE_CHANCE: Final = 0.5
"""The share of seeds with some of the faults that were added last."""

IMPATIENT: Final = 1 / 3
"""The share of impatient producers."""

PRODUCERS: Final = (
    (Kind.IDEMPOTENT,),
    (Kind.CONDITIONAL,),
    (Kind.IDEMPOTENT, Kind.PLAIN),
    (Kind.CONDITIONAL, Kind.CONDITIONAL),
    (Kind.IDEMPOTENT, Kind.PLAIN, Kind.IDEMPOTENT),
    (Kind.IDEMPOTENT, Kind.PLAIN, Kind.IDEMPOTENT, Kind.CONDITIONAL),
)


def plan_of(seed: int, profile: str = "") -> Plan:
    """The plan of a seed, varied by a profile if there is one."""
    plan = _drawn(seed)
    return PROFILES[profile](plan) if profile else draw(plan)


def _more(rng: random.Random) -> dict[str, float]:
    """The rates of faults that were added later, from a random stream of their own: earlier draws stay the
    same."""
    some = rng.random() < MORE_CHANCE
    rates = {
        "durability_changes": rng.choice((0.0, 0.0, 0.3)),
        "retention_changes": rng.choice((0.0, 0.0, 0.2)),
        "setting_changes": rng.choice((0.0, 0.0, 0.3)),
        "clock_jumps": rng.choice((0.0, 0.0, 0.2)),
        "put_backs": rng.choice((0.0, 0.0, 0.0, 0.3)),
        "file_rot": rng.choice((0.0, 0.0, 0.0, 0.3)),
        "renewals": rng.choice((0.0, 0.0, 0.3)),
        "recoveries": rng.choice((0.0, 0.0, 0.0, 0.1)),
        "lost_followers": rng.choice((0.0, 0.0, 0.0, 0.1)),
    }
    return rates if some else dict.fromkeys(rates, 0.0)


def _drawn(seed: int) -> Plan:
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
        "kills": 3.0 if fast_raft else rng.choice((0.0, 0.05, 0.2, 0.5, 1.5)),
        "power_losses": rng.choice((0.0, 0.05, 0.3)),
        "everybody": rng.choice((0.0, 0.0, 0.1)),
        "cuts": rng.choice((0.0, 0.0, 0.1, 0.4)),
        "disk_losses": rng.choice((0.0, 0.0, 0.1, 0.3)),
        "double_crashes": rng.choice((0.0, 0.0, 0.2)),
        "election_kills": 0.3 if fast_raft else rng.choice((0.0, 0.0, 0.1, 0.3)),
        "stops": rng.choice((0.0, 0.0, 0.2)),
        "start_moves": rng.choice((0.0, 0.0, 0.5)),
        "minimum_changes": rng.choice((0.0, 0.0, 0.5)),
        "reassignments": rng.choice((0.0, 0.0, 0.3, 1.5)),
        "leader_moves": rng.choice((0.0, 0.0, 0.0, 1.0)),
        "deletions": rng.choice((0.0, 0.0, 0.5)),
        "rot": rng.choice((0.0, 0.0, 0.3, 1.0)),
        "full_disks": rng.choice((0.0, 0.0, 0.0, 0.2)),
        "mid_write_kills": rng.choice((0.0, 0.0, 0.1, 0.5)),
        "stalls": rng.choice((0.0, 0.0, 0.1, 0.4)),
        "strays": rng.choice((0.0, 0.0, 0.2)),
    }
    is_long = seed % LONG_EVERY == 0
    rates |= _more(random.Random(f"more {seed}"))
    if seed % FEW_EVERY == FEW_EVERY - 1:
        few = random.Random(f"few {seed}")
        kept = few.sample(sorted(name for name, rate in rates.items() if rate), few.choice((0, 1, 2)))
        rates = {name: rate if name in kept else 0.0 for name, rate in rates.items()}
    return Plan(
        seed=seed,
        brokers=brokers,
        voters=rng.choice((3, 3, 5 if brokers >= 5 else 3, 3 if fast_raft else 1)),
        streams=streams,
        producers=rng.choice(PRODUCERS[:2] if fast_raft else PRODUCERS),
        readers=1,
        produce_pause_us=rng.choice((5_000, 20_000, 50_000)),
        impatient=IMPATIENT,
        network=replace(random_conditions(rng), delay_us=(200, 3_000), lost=rng.choice((0.05, 0.3)))
        if fast_raft
        else random_conditions(rng),
        fast_raft=fast_raft,
        restart_us=rng.choice((200, 1_000, 5_000)),
        cut_us=rng.choice(((SECOND // 20, SECOND), (SECOND // 5, 4 * SECOND), (2 * SECOND, 8 * SECOND))),
        one_way=rng.random() < 0.5,
        slow_disks=rng.random() < 0.3,
        volume_flush=seed % VOLUME_FLUSH_EVERY == 1,
        tail_cache_bytes=random.Random(f"cache {seed}").choice(TAIL_CACHES),
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
        seconds=SECONDS_LONG if is_long else SECONDS,
        events_max=EVENTS_LONG if is_long else EVENTS,
        faults=[name for name, rate in rates.items() if rate],
        **rates,  # type: ignore[arg-type]
    )
