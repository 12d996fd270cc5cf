"""All profiles by name, in the order in which `python -m simulator --help` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.plans.plan import Plan
from simulator.plans.profiles import clients, deletion, disks, followers, leaders, nats, processes, quorum

PROFILES: Final[dict[str, Callable[[Plan], Plan]]] = {
    "votes": quorum.votes,
    "takeovers": leaders.takeovers,
    "restarts": processes.restarts,
    "losses": processes.losses,
    "joins": followers.joins,
    "flapping": followers.flapping,
    "small ISRs": followers.small_isrs,
    "lost disks": disks.lost_disks,
    "bad disks": disks.bad_disks,
    "leader acks": clients.leader_acks,
    "busy": clients.busy,
    "losses of power": processes.losses_of_power,
    "deposals": leaders.deposals,
    "partings": leaders.partings,
    "torn cuts": leaders.torn_cuts,
    "standstills": processes.standstills,
    "full disks": disks.full_disks,
    "minima": followers.minima,
    "stops": processes.stops,
    "starts": deletion.starts,
    "moves": followers.moves,
    "leader alone": followers.leader_alone,
    "unanswered": clients.unanswered,
    "cut off": leaders.cut_off,
    "snapshots": quorum.snapshots,
    "failed flushes": disks.failed_flushes,
    "failed page caches": disks.failed_page_caches,
    "switches": disks.switches,
    "quick switches": disks.quick_switches,
    "returns": leaders.returns,
    "trimmed losses": processes.trimmed_losses,
    "slow trimmed losses": processes.slow_trimmed_losses,
    "refused starts": deletion.refused_starts,
    "one writer": clients.one_writer,
    "unanswered heartbeats": leaders.unanswered_heartbeats,
    "twice lost": processes.twice_lost,
    "moves and ends": followers.moves_and_ends,
    "old records": deletion.old_records,
    "cold starts": deletion.cold_starts,
    "recoveries": quorum.recoveries,
    "old volumes": disks.old_volumes,
    "rotten files": disks.rotten_files,
    "renewals": deletion.renewals,
    "nats": nats.nats,
    "late messages": nats.late_messages,
    "lost followers": followers.lost_followers,
    "late reads": leaders.late_reads,
    "sinks": clients.sinks,
}
