"""``tidelog cluster``, the commands that change nothing: `describe` and `replicas`.

Neighbours: `brokers`, `moves` and `recover` have the commands that change something.
"""

from __future__ import annotations

import typer

import tidelog
from tidelog.cli.cluster import brokers, moves, recover
from tidelog.cli.cluster.output import (
    REPLICA_COLUMNS,
    brokers_table,
    cluster_facts,
    cluster_json,
    replica_json,
    replica_row,
    troubled_table,
)
from tidelog.cli.completion import stream_names
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.output import OUTPUT, Output, console, example, print_json, table
from tidelog.errors import TidelogError
from tidelog.model import ReplicaDescription

EXAMPLES = {
    "describe": "tidelog cluster describe --server localhost:9210",
    "replicas": "tidelog cluster replicas orders --under-replicated",
}

app = typer.Typer(
    help="See brokers and replicas; move replicas and leaders.",
    epilog=example(EXAMPLES["describe"]),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog=example(EXAMPLES["describe"]))
def describe(server: str = SERVER, output: Output = OUTPUT) -> None:
    """Show brokers, the controller, voters and trouble."""
    cluster = connected(server, lambda client: client.describe_cluster())
    if output is Output.JSON:
        print_json(cluster_json(cluster))
        return
    screen = console()
    screen.print(cluster_facts(cluster))
    screen.print()
    screen.print(brokers_table(cluster))
    troubled = troubled_table(cluster)
    if troubled is not None:
        screen.print()
        screen.print(troubled)


@app.command(epilog=example(EXAMPLES["replicas"]))
def replicas(
    stream: str = typer.Argument(
        "", help="Only this stream; without it, all streams.", autocompletion=stream_names
    ),
    under_replicated: bool = typer.Option(
        False, "--under-replicated", help="Only copies that are not in sync, damaged or missing."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Show every copy of every partition.

    For each copy the command shows the broker, role, state, offsets, lag and size. The lag is the number of
    records of the leader's log that the copy lacks. The command asks each broker for its own copies.
    """

    async def ask(client: tidelog.Client) -> list[tuple[ReplicaDescription, str]]:
        if stream:
            await client.describe_stream(stream)
        found = await client.describe_replicas(stream)
        if under_replicated:
            found = [one for one in found if not one.in_sync or one.state != "online"]
        return [(r, await _why_quarantined(client, r) if output is Output.JSON else "") for r in found]

    found = connected(server, ask)
    if output is Output.JSON:
        print_json([replica_json(replica, reason) for replica, reason in found])
        return
    rows = [replica_row(replica) for replica, _ in found]
    console().print(table(REPLICA_COLUMNS, rows, right=REPLICA_COLUMNS[5:]))


async def _why_quarantined(client: tidelog.Client, replica: ReplicaDescription) -> str:
    """Why a replica is quarantined: the refusal of its offsets says so, its description does not."""
    if replica.state != "quarantined":
        return ""
    try:
        await client.offsets(replica.name, [replica.partition])
    except TidelogError as error:
        return error.message
    return ""


brokers.add_to(app)
moves.add_to(app)
recover.add_to(app)
