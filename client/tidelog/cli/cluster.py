"""``tidelog cluster``: the brokers, and what each holds."""

from __future__ import annotations

from typing import Any

import typer

import tidelog
from tidelog.admin import LOST_STATES
from tidelog.cli._connection import SERVER, connected
from tidelog.cli._output import OUTPUT, Output, console, example, facts, print_json, table
from tidelog.cli._values import show_bytes
from tidelog.errors import TidelogError
from tidelog.model import BrokerDescription, ClusterDescription, ReplicaDescription, id_text

EXAMPLES = {
    "describe": "tidelog cluster describe --server localhost:9210",
    "replicas": "tidelog cluster replicas orders",
}

app = typer.Typer(
    help="See the brokers and what each holds.",
    epilog=example(EXAMPLES["describe"]),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog=example(EXAMPLES["describe"]))
def describe(server: str = SERVER, output: Output = OUTPUT) -> None:
    """Show the cluster: its brokers, their addresses, how many streams there are."""
    cluster = connected(server, lambda client: client.describe_cluster())
    if output is Output.JSON:
        print_json(_cluster_json(cluster))
        return
    screen = console()
    screen.print(
        facts(
            [
                ("cluster", id_text(cluster.cluster_id)),
                ("version", cluster.software_version),
                ("controller", "none" if cluster.controller is None else cluster.controller),
                ("streams", f"{cluster.stream_count} ({cluster.partition_count} partitions)"),
            ]
        )
    )
    screen.print()
    rows = [(b.broker_id, b.state, _addresses(b), b.rack, id_text(b.directory_id)) for b in cluster.brokers]
    screen.print(table(("broker", "state", "addresses", "rack", "directory"), rows))


@app.command(epilog=example(EXAMPLES["replicas"]))
def replicas(
    stream: str = typer.Argument("", help="Only this stream; without it, all."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Show every copy of every partition: offsets, sizes, state."""

    async def ask(client: tidelog.Client) -> list[tuple[ReplicaDescription, str]]:
        if stream:
            await client.describe_stream(stream)
        found = await client.describe_replicas(stream)
        return [(r, await _why_quarantined(client, r) if output is Output.JSON else "") for r in found]

    found = connected(server, ask)
    if output is Output.JSON:
        print_json([_replica_json(replica, reason) for replica, reason in found])
        return
    rows = [
        (
            f"{r.name}/{r.partition}", r.broker_id, _role(r), _state(r),
            *((None,) * 6 if r.state in LOST_STATES else _extent(r)),
        )
        for r, _ in found
    ]  # fmt: skip
    columns = (
        "partition",
        "broker",
        "role",
        "state",
        "start",
        "committed",
        "end",
        "on disk",
        "size",
        "segments",
    )
    console().print(table(columns, rows, right=columns[4:]))


def _addresses(broker: BrokerDescription) -> str:
    return ", ".join(f"{listener.name}={listener.target}" for listener in broker.listeners)


async def _why_quarantined(client: tidelog.Client, replica: ReplicaDescription) -> str:
    """The description has no room for it, but whoever wants the offsets is told."""
    if replica.state != "quarantined":
        return ""
    try:
        await client.offsets(replica.name, [replica.partition])
    except TidelogError as error:
        return error.message
    return ""


def _role(replica: ReplicaDescription) -> str:
    if replica.state in LOST_STATES:
        return "lost"
    return "leader" if replica.leader else "follower"


def _extent(r: ReplicaDescription) -> tuple[object, ...]:
    return (
        r.log_start_offset, r.high_watermark, r.log_end_offset, r.durable_offset, show_bytes(r.bytes),
        r.segments,
    )  # fmt: skip


def _state(replica: ReplicaDescription) -> str:
    return f"{replica.state}, suspect" if replica.suspect else replica.state


def _cluster_json(cluster: ClusterDescription) -> dict[str, Any]:
    return {
        "cluster_id": id_text(cluster.cluster_id),
        "metadata_version": cluster.metadata_version,
        "controller": cluster.controller,
        "voters": list(cluster.voters),
        "software_version": cluster.software_version,
        "stream_count": cluster.stream_count,
        "partition_count": cluster.partition_count,
        "brokers": [
            {
                "broker_id": broker.broker_id,
                "state": broker.state,
                "rack": broker.rack,
                "incarnation": id_text(broker.incarnation),
                "directory_id": id_text(broker.directory_id),
                "listeners": {listener.name: listener.target for listener in broker.listeners},
            }
            for broker in cluster.brokers
        ],
    }


def _replica_json(replica: ReplicaDescription, reason: str) -> dict[str, Any]:
    return {
        "stream": replica.name,
        "stream_id": id_text(replica.stream_id),
        "partition": replica.partition,
        "broker_id": replica.broker_id,
        "role": _role(replica),
        "leader": replica.leader,
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
