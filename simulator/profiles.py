"""Variations of a plan that make likely what few runs have; a planted bug may name the one it needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from simulator.nats.plan import Kind as Publishing
from simulator.nats.plan import NatsPlan, with_nats
from simulator.network import Conditions
from simulator.plan import RATES, Plan, StreamPlan
from simulator.producers import Kind
from simulator.world import SECOND


def _calm(plan: Plan, **faults: Any) -> Plan:
    """No faults but those."""
    none = dict.fromkeys(RATES, 0.0)
    return replace(plan, **{**none, "vote_kills": 0.0, "fast_raft": False, "slow_disks": False, **faults})


def _streams(plan: Plan, **settings: Any) -> tuple[StreamPlan, ...]:
    return tuple(
        replace(stream, **{"replication_factor": 3, "partitions": 1, **settings}) for stream in plan.streams
    )


def _votes(plan: Plan) -> Plan:
    """Elections collide, and who votes ends at once and is back at once."""
    network = replace(plan.network, delay_us=(200, 3_000), lost=0.1)
    return _calm(
        plan,
        brokers=5,
        voters=5,
        fast_raft=True,
        network=network,
        kills=20.0,
        election_kills=0.5,
        vote_kills=0.5,
        restart_us=2_000,
        down_us=(200, SECOND // 50),
    )


def _takeovers(plan: Plan) -> Plan:
    """Leadership moves all the time, while answers of earlier leaders are on their way."""
    network = Conditions(delay_us=(200, 10_000), slow=0.05)
    return _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=network,
        leader_moves=30.0,
        kills=2.0,
        power_losses=1.0,
        cuts=1.0,
        cut_us=(SECOND // 20, SECOND),
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _restarts(plan: Plan) -> Plan:
    """Processes end, and their machines lose power right after they are back."""
    return _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=Conditions(),
        kills=2.0,
        power_losses=1.0,
        double_crashes=8.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _losses(plan: Plan) -> Plan:
    """Everybody loses power at once, streams are in the page cache, and readers hold positions."""
    return _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=False, min_insync=1),
        readers=3,
        everybody=2.0,
        power_losses=2.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _joins(plan: Plan) -> Plan:
    """Followers leave and join again, while proposals are lost, late and doubled."""
    network = replace(plan.network, lost=0.05, slow=0.05)
    return _calm(
        plan,
        brokers=4,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=network,
        kills=5.0,
        power_losses=0.3,
        cuts=2.0,
        cut_us=(SECOND // 20, SECOND),
        minimum_changes=2.0,
        reassignments=1.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _flapping(plan: Plan) -> Plan:
    """Nobody ends, but links do, for long enough that a follower leaves or is fenced; proposals are late."""
    network = Conditions(delay_us=(50, 300), slow=0.05, lost=0.02)
    return _calm(
        plan,
        brokers=4,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=network,
        kills=0.1,
        cuts=1.0,
        cut_us=(SECOND // 2, 5 * SECOND),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=10_000,
    )


def _small_isrs(plan: Plan) -> Plan:
    """ISRs are below their minimum again and again, and the minimum moves."""
    return _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=3),
        kills=1.0,
        cuts=0.5,
        cut_us=(2 * SECOND, 5 * SECOND),
        minimum_changes=1.0,
        down_us=(SECOND, 5 * SECOND),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=20_000,
    )


def _lost_disks(plan: Plan) -> Plan:
    """Disks are lost one after the other."""
    return _calm(
        plan,
        brokers=3,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=3),
        network=Conditions(),
        disk_losses=3.0,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _bad_disks(plan: Plan) -> Plan:
    """Bits turn over, and folders are moved about."""
    return _calm(
        plan,
        brokers=4,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(),
        rot=5.0,
        strays=2.0,
        reassignments=1.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _nats(plan: Plan) -> Plan:
    """Streams record subjects, and leaders, servers and links between them come and go."""
    rng = random.Random(f"nats profile {plan.seed}")
    calmer = _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2, partitions=rng.choice((1, 2))),
        network=replace(plan.network, slow=0.01),
        kills=0.2,
        cuts=0.2,
        stalls=0.2,
        stops=0.1,
        leader_moves=1.0,
        cut_us=(SECOND // 5, 3 * SECOND),
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=100_000,
    )
    nats = NatsPlan(
        servers=rng.choice((1, 2)),
        publishers=tuple(Publishing),
        pause_us=20_000,
        pending_bytes_max=rng.choice((16 << 10, 1 << 20)),
        kills=0.1,
        cuts=0.2,
        stalls=0.1,
    )
    return with_nats(calmer, nats, rng)


def _late_messages(plan: Plan) -> Plan:
    """Leadership goes to and fro between brokers, and what a NATS server sends comes late."""
    rng = random.Random(f"late messages {plan.seed}")
    calmer = _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2, partitions=2)[:1],
        network=Conditions(delay_us=(200, 3_000), slow=0.01),
        leader_moves=5.0,
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=200_000,
    )
    nats = NatsPlan(publishers=(Publishing.ASKING, Publishing.TELLING), pause_us=5_000)
    return with_nats(calmer, nats, rng)


PROFILES: Final[dict[str, Callable[[Plan], Plan]]] = {
    "votes": _votes,
    "takeovers": _takeovers,
    "restarts": _restarts,
    "losses": _losses,
    "joins": _joins,
    "flapping": _flapping,
    "small ISRs": _small_isrs,
    "lost disks": _lost_disks,
    "bad disks": _bad_disks,
    "nats": _nats,
    "late messages": _late_messages,
}
