"""How `tidelog cluster` shows a cluster: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tidelog.cli.output import facts, table
from tidelog.cli.values import show_bytes
from tidelog.model import (
    BrokerDescription,
    BrokerStanding,
    ClusterDescription,
    PartitionStanding,
    ReplicaDescription,
    id_text,
)
from tidelog.model.replica_lag import LOST_STATES, UNREACHABLE
from tidelog.wording import count_of, listed

TROUBLED_SHOWN_MAX = 20
"""Partitions in trouble in a table; JSON has all that the broker names."""

REPLICA_COLUMNS = (
    "partition",
    "broker",
    "role",
    "in sync",
    "state",
    "start",
    "committed",
    "end",
    "lag",
    "on disk",
    "size",
    "segments",
)


def cluster_facts(cluster: ClusterDescription) -> Table:
    return facts(
        [
            ("cluster", id_text(cluster.cluster_id)),
            ("version", cluster.software_version),
            ("controller", "none" if cluster.controller is None else cluster.controller),
            ("voters", listed(cluster.voters)),
            ("streams", f"{cluster.stream_count} ({count_of(cluster.partition_count, 'partition')})"),
            *(
                (name, count_of(count, "partition"))
                for name, count in (
                    ("under-replicated", cluster.under_replicated_count),
                    ("below minimum", cluster.below_minimum_count),
                    ("without leader", cluster.leaderless_count),
                    ("moving", cluster.reassigning_count),
                )
                if count
            ),
            *(
                [
                    (
                        "throttle",
                        f"{show_bytes(cluster.throttle_bytes_per_second)} a second from broker to broker",
                    )
                ]
                if cluster.throttle_bytes_per_second
                else []
            ),
        ]
    )


def brokers_table(cluster: ClusterDescription) -> Table:
    standings = {one.broker_id: one for one in cluster.standings}
    rows = [_broker_row(cluster, broker, standings.get(broker.broker_id)) for broker in cluster.brokers]
    columns = (
        "broker",
        "state",
        "votes",
        "leaders",
        "replicas",
        "not in sync",
        "addresses",
        "rack",
        "directory",
    )
    return table(columns, rows, right=("leaders", "replicas", "not in sync"))


def troubled_table(cluster: ClusterDescription) -> Table | None:
    """Partitions with a copy that is not in sync, or without a leader; None: there are none."""
    if not cluster.troubled:
        return None
    rows: list[tuple[object, ...]] = [
        (one.label, _leader(one), listed(one.partition.isr), listed(one.partition.lagging), one.min_insync)
        for one in cluster.troubled[:TROUBLED_SHOWN_MAX]
    ]
    more = cluster.under_replicated_count + cluster.leaderless_count - len(rows)
    if len(cluster.troubled) > TROUBLED_SHOWN_MAX:
        rows.append((f"and up to {more} more", None, None, None, None))
    return table(("in trouble", "leader", "in sync", "not in sync", "minimum"), rows, right=("minimum",))


def moves_table(partitions: Sequence[PartitionStanding]) -> Table:
    rows = [
        (
            one.label, _leader(one), listed(one.partition.isr), listed(one.partition.target),
            listed(one.partition.adding), listed(one.partition.removing),
        )
        for one in partitions
    ]  # fmt: skip
    return table(("partition", "leader", "in sync", "target", "joining", "leaving"), rows)


def replica_row(r: ReplicaDescription) -> tuple[object, ...]:
    known = r.state not in (*LOST_STATES, UNREACHABLE)
    extent: tuple[object, ...] = (
        r.log_start_offset, r.high_watermark, r.log_end_offset, r.lag, r.durable_offset,
        show_bytes(r.bytes), r.segments,
    )  # fmt: skip
    return (
        f"{r.name}/{r.partition}", r.broker_id, role_of(r), "yes" if r.in_sync else "no", _state(r),
        *(extent if known else (None,) * len(extent)),
    )  # fmt: skip


def role_of(replica: ReplicaDescription) -> str:
    return "lost" if replica.state in LOST_STATES else replica.role


def _state(replica: ReplicaDescription) -> str:
    return f"{replica.state}, suspect" if replica.suspect else replica.state


def _broker_row(
    cluster: ClusterDescription, broker: BrokerDescription, standing: BrokerStanding | None
) -> tuple[object, ...]:
    addresses = ", ".join(f"{listener.name}={listener.target}" for listener in broker.listeners)
    controller = ", controller" if broker.broker_id == cluster.controller else ""
    vote = f"yes{controller}" if broker.broker_id in cluster.voters else "no"
    rest = (addresses, broker.rack, id_text(broker.directory_id))
    if standing is None:
        return (broker.broker_id, broker.state, vote, None, None, None, *rest)
    wish = f" ({standing.vote})" if standing.vote else ""
    counts = (standing.leaders, standing.replicas, standing.out_of_sync)
    return (broker.broker_id, standing.state, f"{vote}{wish}", *counts, *rest)


def _leader(one: PartitionStanding) -> object:
    return "none" if one.partition.leader is None else one.partition.leader


def cluster_json(cluster: ClusterDescription) -> dict[str, Any]:
    standings = {one.broker_id: one for one in cluster.standings}
    return {
        "cluster_id": id_text(cluster.cluster_id),
        "metadata_version": cluster.metadata_version,
        "controller": cluster.controller,
        "voters": list(cluster.voters),
        "software_version": cluster.software_version,
        "stream_count": cluster.stream_count,
        "partition_count": cluster.partition_count,
        "under_replicated_count": cluster.under_replicated_count,
        "below_minimum_count": cluster.below_minimum_count,
        "leaderless_count": cluster.leaderless_count,
        "reassigning_count": cluster.reassigning_count,
        "throttle_bytes_per_second": cluster.throttle_bytes_per_second or None,
        "troubled": [partition_json(one) for one in cluster.troubled],
        "brokers": [_broker_json(broker, standings.get(broker.broker_id)) for broker in cluster.brokers],
    }


def _broker_json(broker: BrokerDescription, standing: BrokerStanding | None) -> dict[str, Any]:
    return {
        "broker_id": broker.broker_id,
        "state": broker.state if standing is None else standing.state,
        **({} if standing is None else _standing_json(standing)),
        "rack": broker.rack,
        "incarnation": id_text(broker.incarnation),
        "directory_id": id_text(broker.directory_id),
        "listeners": {listener.name: listener.target for listener in broker.listeners},
    }


def _standing_json(standing: BrokerStanding) -> dict[str, Any]:
    return {
        "cordoned": standing.cordoned,
        "voter": standing.voter,
        "vote": standing.vote or None,
        "replicas": standing.replicas,
        "leaders": standing.leaders,
        "out_of_sync": standing.out_of_sync,
    }


def partition_json(one: PartitionStanding) -> dict[str, Any]:
    p = one.partition
    return {
        "stream": one.name,
        "stream_id": id_text(one.stream_id),
        "partition": p.partition,
        "leader": p.leader,
        "leader_epoch": p.leader_epoch,
        "replicas": list(p.replicas),
        "isr": list(p.isr),
        "eligible": list(p.eligible),
        "adding": list(p.adding),
        "removing": list(p.removing),
        "min_insync": one.min_insync,
    }


def replica_json(replica: ReplicaDescription, reason: str) -> dict[str, Any]:
    return {
        "stream": replica.name,
        "stream_id": id_text(replica.stream_id),
        "partition": replica.partition,
        "broker_id": replica.broker_id,
        "role": role_of(replica) or None,
        "leader": replica.leader,
        "leader_epoch": replica.leader_epoch,
        "in_sync": replica.in_sync,
        "lag": replica.lag,
        "state": replica.state,
        "reason": reason or None,
        "suspect": replica.suspect,
        "log_start_offset": replica.log_start_offset,
        "high_watermark": replica.high_watermark,
        "log_end_offset": replica.log_end_offset,
        "durable_offset": replica.durable_offset,
        "bytes": replica.bytes,
        "segments": replica.segments,
        "damaged": [list(span) for span in replica.damaged],
    }
