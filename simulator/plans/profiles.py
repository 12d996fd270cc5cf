"""Variations of a plan that make likely what few runs have; a planted bug may name the one it needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.nats.plan import Kind as Publishing
from simulator.nats.plan import NatsPlan
from simulator.plans.nats import with_nats
from simulator.plans.plan import EVENTS_LONG, RATES, Plan, StreamPlan
from simulator.world import SECOND
from tidelog_broker.storage.log.tail_cache import TAIL_CACHE_BYTES_MAX

SECONDS_SHORT: Final = 10.0
"""Of faults, where they come one upon the other."""


def _calm(plan: Plan, **faults: Any) -> Plan:
    """No faults but those."""
    none = {
        **dict.fromkeys(RATES, 0.0),
        "impatient": 0.0,
        "vote_kills": 0.0,
        "fast_raft": False,
        "slow_disks": False,
    }
    return replace(plan, **{**none, "tail_cache_bytes": TAIL_CACHE_BYTES_MAX, **faults})


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
        kills=4.0,
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
    """ISRs are below their minimum again and again, and the minimum moves; records are deleted then, too."""
    return _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=3),
        kills=1.0,
        cuts=0.5,
        cut_us=(2 * SECOND, 5 * SECOND),
        minimum_changes=1.0,
        start_moves=2.0,
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


def _leader_acks(plan: Plan) -> Plan:
    """Some producers want their leader's disk alone."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        kills=0.3,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN, Kind.IDEMPOTENT),
        produce_pause_us=20_000,
    )


def _busy(plan: Plan) -> Plan:
    """Nothing is amiss, and there is always a write while a flush runs."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT / 2,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2)[:1],
        network=Conditions(),
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=5_000,
    )


def _losses_of_power(plan: Plan) -> Plan:
    """Machines lose power, one after the other or all at once, and nothing was promised of the page cache."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=Conditions(),
        power_losses=1.5,
        everybody=0.5,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=15_000,
    )


def _deposals(plan: Plan) -> Plan:
    """Leaders are deposed while records are on their way to followers, and disks are slow to take them."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000), slow=0.02),
        leader_moves=3.0,
        kills=1.0,
        power_losses=0.3,
        cuts=0.7,
        cut_us=(SECOND // 2, 2 * SECOND),
        slow_disks=True,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _partings(plan: Plan) -> Plan:
    """Leaders are cut off, while clients write to them: what they took alone is cut off again."""
    return _calm(
        plan,
        brokers=3,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=2)[:1],
        network=Conditions(),
        cuts=1.5,
        cut_us=(SECOND // 2, 2 * SECOND),
        leader_moves=1.0,
        kills=0.1,
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=15_000,
    )


def _torn_cuts(plan: Plan) -> Plan:
    """Logs are cut again and again, and processes end in the middle of it."""
    return replace(_deposals(plan), slow_disks=False, mid_write_kills=4.0, everybody=0.2)


def _standstills(plan: Plan) -> Plan:
    """Processes and disks stand still, for longer than a connection lives."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=Conditions(),
        stalls=0.7,
        produce_pause_us=20_000,
    )


def _full_disks(plan: Plan) -> Plan:
    """One disk after the other is full, in the middle of a write."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=Conditions(),
        full_disks=1.5,
        start_moves=1.0,
        kills=0.7,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=15_000,
    )


def _minima(plan: Plan) -> Plan:
    """The minimum moves while appends are on their way: some are refused in the middle of others."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=3),
        network=Conditions(delay_us=(1_000, 10_000)),
        kills=0.5,
        minimum_changes=5.0,
        producers=(Kind.PLAIN, Kind.IDEMPOTENT),
        down_us=(SECOND, 4 * SECOND),
        produce_pause_us=10_000,
    )


def _stops(plan: Plan) -> Plan:
    """Brokers stop one after the other, leaders move by plan, and some write without sequences."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000)),
        stops=0.7,
        leader_moves=1.0,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=30_000,
    )


def _starts(plan: Plan) -> Plan:
    """Records are deleted all the time, while leaders change and processes end in the middle of a write."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000)),
        start_moves=6.0,
        leader_moves=2.0,
        kills=1.0,
        power_losses=0.3,
        mid_write_kills=2.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=15_000,
    )


def _moves(plan: Plan) -> Plan:
    """Replicas go to other brokers and come back, faster than answers arrive."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=4,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000), slow=0.05),
        reassignments=5.0,
        kills=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _leader_alone(plan: Plan) -> Plan:
    """Partitions have one replica, and nobody waits for a disk."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, replication_factor=1, fsync=False, min_insync=1),
        network=Conditions(),
        kills=1.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=15_000,
    )


def _unanswered(plan: Plan) -> Plan:
    """Answers are late or lost, and records are given up before anybody knows what became of them."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 10_000), slow=0.05, lost=0.02),
        kills=0.5,
        stalls=0.5,
        cuts=0.3,
        cut_us=(3 * SECOND, 9 * SECOND),
        leader_moves=1.0,
        minimum_changes=0.5,
        producers=(Kind.IDEMPOTENT, Kind.IDEMPOTENT),
        down_us=(SECOND // 5, 6 * SECOND),
        produce_pause_us=20_000,
    )


def _cut_off(plan: Plan) -> Plan:
    """Brokers are heard and do not hear, or the other way round, for longer than a session."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=Conditions(),
        cuts=0.3,
        cut_us=(4 * SECOND, 8 * SECOND),
        one_way=True,
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=20_000,
    )


def _snapshots(plan: Plan) -> Plan:
    """The metadata log is short: who was away is sent an image."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=5,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=Conditions(),
        kills=0.3,
        power_losses=0.7,
        mid_write_kills=0.3,
        leader_moves=8.0,
        minimum_changes=4.0,
        setting_changes=4.0,
        snapshot_entries=4,
        down_us=(SECOND, 5 * SECOND),
        produce_pause_us=50_000,
    )


def _failed_flushes(plan: Plan) -> Plan:
    """Flushes fail, and people have the disks recovered."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=_streams(plan, min_insync=1),
        network=Conditions(),
        failed_flushes=0.7,
        kills=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=20_000,
    )


def _failed_page_caches(plan: Plan) -> Plan:
    """Flushes fail of what was committed without them, and people have the disks recovered."""
    return replace(
        _failed_flushes(plan),
        streams=_streams(plan, fsync=False, min_insync=1),
        failed_flushes=1.5,
        produce_pause_us=10_000,
    )


def _switches(plan: Plan) -> Plan:
    """Durability changes to and fro, and power is lost, of one broker or of all (R17)."""
    return _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(),
        durability_changes=1.5,
        slow_disks=True,
        setting_changes=0.3,
        power_losses=1.0,
        everybody=0.3,
        leader_moves=0.5,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _quick_switches(plan: Plan) -> Plan:
    """Durability changes, and the brokers learn of it one after the other (R17)."""
    return replace(
        _switches(plan),
        seconds=SECONDS_SHORT,
        network=Conditions(delay_us=(200, 10_000), slow=0.02),
        durability_changes=6.0,
        setting_changes=0.0,
        power_losses=0.0,
        everybody=0.0,
        produce_pause_us=5_000,
    )


def _returns(plan: Plan) -> Plan:
    """Leadership goes away and is back before anybody has heard what was said before (R2).

    Other partitions keep the connection open.
    """
    return _calm(
        plan,
        seconds=SECONDS_SHORT / 4,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2, partitions=4)[:1],
        network=Conditions(delay_us=(100, 1_000), slow=0.02),
        leader_returns=3.0,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=20_000,
    )


def _trimmed_losses(plan: Plan) -> Plan:
    """Records are deleted, and then everybody loses power before the page cache is flushed (R11)."""
    return replace(_losses(plan), seconds=SECONDS_SHORT, start_moves=10.0, everybody=2.0, power_losses=0.5)


def _refused_starts(plan: Plan) -> Plan:
    """Records are deleted, and the disk does not always take where a log begins then."""
    return replace(_starts(plan), failed_saves=3.0, mid_write_kills=0.0)


def _one_writer(plan: Plan) -> Plan:
    """Nothing is amiss, and one client waits for each of its answers: nobody else moves anything on."""
    return _calm(
        plan,
        brokers=3,
        streams=_streams(plan, fsync=True, min_insync=2)[:1],
        network=Conditions(),
        start_moves=2.0,
        producers=(Kind.CONDITIONAL,),
        produce_pause_us=20_000,
    )


def _deaf_leaders(plan: Plan) -> Plan:
    """Brokers are heard and do not hear for a while, and followers come and go."""
    return _calm(
        plan,
        seconds=SECONDS_SHORT,
        brokers=5,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=1),
        network=Conditions(slow=0.02),
        kills=0.7,
        cuts=2.0,
        cut_us=(SECOND // 2, 2 * SECOND),
        one_way=True,
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=10_000,
    )


def _twice_lost(plan: Plan) -> Plan:
    """Machines lose power, and again right after they are back."""
    return replace(_losses(plan), seconds=SECONDS_SHORT, everybody=0.3, double_crashes=4.0)


def _moves_and_ends(plan: Plan) -> Plan:
    """Replicas go and come back, and processes end all the time."""
    return replace(_moves(plan), kills=2.0, power_losses=0.5)


def _old_records(plan: Plan) -> Plan:
    """Streams keep little, and one clock after the other is wrong (R18)."""
    return _calm(
        plan,
        brokers=3,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(),
        skew_us=0,
        retention_changes=0.5,
        setting_changes=0.3,
        clock_jumps=0.7,
        renewals=0.2,
        kills=0.3,
        start_moves=0.2,
        leader_moves=0.3,
        produce_pause_us=5_000,
    )


def _cold_starts(plan: Plan) -> Plan:
    """All brokers restart together, over and over, and one clock is wrong (R18)."""
    return _calm(
        plan,
        brokers=3,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(),
        skew_us=0,
        clock_jumps=1.0,
        kills=1.0,
        everybody=0.5,
        down_us=(SECOND // 50, SECOND // 2),
        produce_pause_us=5_000,
    )


def _recoveries(plan: Plan) -> Plan:
    """The metadata goes on by force, again and again, while replicas move."""
    return _calm(
        plan,
        brokers=random.Random(f"recoveries {plan.seed}").choice((3, 5)),
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(),
        recoveries=0.4,
        kills=0.3,
        cuts=0.5,
        cut_us=(SECOND // 2, 3 * SECOND),
        reassignments=0.5,
        leader_moves=0.5,
        down_us=(SECOND // 50, SECOND // 2),
        produce_pause_us=10_000,
    )


def _old_volumes(plan: Plan) -> Plan:
    """Volumes are put back from copies, between elections (R19)."""
    return _calm(
        plan,
        brokers=3,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        network=Conditions(),
        put_backs=3.0,
        kills=0.5,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _rotten_files(plan: Plan) -> Plan:
    """Files that are no segments rot."""
    return _calm(
        plan,
        brokers=3,
        voters=3,
        streams=_streams(plan, min_insync=2),
        network=Conditions(),
        file_rot=2.0,
        retention_changes=0.1,
        clock_jumps=0.1,
        start_moves=0.3,
        stops=0.3,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def _renewals(plan: Plan) -> Plan:
    """A stream is deleted and made again all the time, while brokers end, in the middle of it too."""
    return _calm(
        plan,
        brokers=4,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=2),
        renewals=1.0,
        mid_write_kills=1.0,
        kills=0.7,
        power_losses=0.2,
        cuts=0.3,
        reassignments=0.2,
        down_us=(SECOND // 20, 2 * SECOND),
        produce_pause_us=50_000,
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


def _lost_followers(plan: Plan) -> Plan:
    """Followers are behind for so long that they are to leave, and are back before that is decided."""
    return _calm(
        plan,
        events_max=EVENTS_LONG,
        brokers=3,
        voters=3,
        streams=_streams(plan, fsync=True, min_insync=3, partitions=3)[:1],
        network=Conditions(),
        lost_followers=1.0,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=100_000,
    )


def _late_reads(plan: Plan) -> Plan:
    """Followers are sent nothing from memory, and are behind: their leaders read slowly, and are deposed."""
    return replace(
        _deposals(plan),
        tail_cache_bytes=0,
        leader_moves=2.0,
        leader_returns=4.0,
        cut_us=(SECOND // 20, SECOND // 2),
    )


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
    "leader acks": _leader_acks,
    "busy": _busy,
    "losses of power": _losses_of_power,
    "deposals": _deposals,
    "partings": _partings,
    "torn cuts": _torn_cuts,
    "standstills": _standstills,
    "full disks": _full_disks,
    "minima": _minima,
    "stops": _stops,
    "starts": _starts,
    "moves": _moves,
    "leader alone": _leader_alone,
    "unanswered": _unanswered,
    "cut off": _cut_off,
    "snapshots": _snapshots,
    "failed flushes": _failed_flushes,
    "failed page caches": _failed_page_caches,
    "switches": _switches,
    "quick switches": _quick_switches,
    "returns": _returns,
    "trimmed losses": _trimmed_losses,
    "refused starts": _refused_starts,
    "one writer": _one_writer,
    "deaf leaders": _deaf_leaders,
    "twice lost": _twice_lost,
    "moves and ends": _moves_and_ends,
    "old records": _old_records,
    "cold starts": _cold_starts,
    "recoveries": _recoveries,
    "old volumes": _old_volumes,
    "rotten files": _rotten_files,
    "renewals": _renewals,
    "nats": _nats,
    "late messages": _late_messages,
    "lost followers": _lost_followers,
    "late reads": _late_reads,
}
