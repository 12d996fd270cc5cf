"""How a profile changes the plan of a seed: it removes all faults, and adds those that it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from simulator.plans.plan import RATES, Plan, StreamPlan
from tidelog_broker.storage.log.tail_cache import TAIL_CACHE_BYTES_MAX

SECONDS_SHORT: Final = 10.0
"""How long faults happen in profiles with frequent faults."""


def only(plan: Plan, **faults: Any) -> Plan:
    """The plan with no other faults than `faults`."""
    none = {
        **dict.fromkeys(RATES, 0.0),
        "impatient": 0.0,
        "vote_kills": 0.0,
        "fast_raft": False,
        "slow_disks": False,
    }
    return replace(plan, **{**none, "tail_cache_bytes": TAIL_CACHE_BYTES_MAX, **faults})


def streams_of(plan: Plan, **settings: Any) -> tuple[StreamPlan, ...]:
    """The streams of the plan, each with one partition and three replicas, changed by `settings`."""
    return tuple(
        replace(stream, **{"replication_factor": 3, "partitions": 1, **settings}) for stream in plan.streams
    )
