"""``tidelog cluster``: the brokers, and what each holds. The commands that change something: its neighbours
`brokers`, `moves` and `recover`."""

from __future__ import annotations

import typer

import tidelog
from tidelog.cli.cluster import (
    brokers as _cluster_brokers,
)
from tidelog.cli.cluster import (
    moves as _cluster_moves,
)
from tidelog.cli.cluster import (
    recover as _cluster_recover,
)
from tidelog.cli.cluster.output import (
    REPLICA_COLUMNS,
    brokers_table,
    cluster_facts,
    cluster_json,
    replica_json,
    replica_row,
    troubled_table,
)
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.output import OUTPUT, Output, console, example, print_json, table
from tidelog.errors import TidelogError
from tidelog.model import ReplicaDescription

EXAMPLES = {
    "describe": "tidelog cluster describe --server localhost:9210",
    "replicas": "tidelog cluster replicas orders --under-replicated",
}

app = typer.Typer(
    help="See the brokers and what each holds; move replicas, leaders and votes.",
    epilog=example(EXAMPLES["describe"]),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog=example(EXAMPLES["describe"]))
def describe(server: str = SERVER, output: Output = OUTPUT) -> None:
    """Show the cluster: brokers, what each is and leads, who controls and votes, what is in trouble."""
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
    stream: str = typer.Argument("", help="Only this stream; without it, all."),
    under_replicated: bool = typer.Option(
        False, "--under-replicated", help="Only copies that are not in sync, damaged or not there."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Show every copy of every partition on every broker: role, offsets, lag, size, state.

    Lag is what a copy lacks of its leader's log, in records. Each broker is asked for its own.
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
    """The description has no room for it, but whoever wants the offsets is told."""
    if replica.state != "quarantined":
        return ""
    try:
        await client.offsets(replica.name, [replica.partition])
    except TidelogError as error:
        return error.message
    return ""


_cluster_brokers.add_to(app)
_cluster_moves.add_to(app)
_cluster_recover.add_to(app)
