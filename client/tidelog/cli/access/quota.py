"""``tidelog quota``: how much principals may use."""

from __future__ import annotations

import sys
from dataclasses import asdict

import typer

from tidelog.cli.connection import SERVER, connected
from tidelog.cli.output import OUTPUT, Output, console, example, print_json, table
from tidelog.cli.values import show_bytes, size_bytes
from tidelog.model import Quota

app = typer.Typer(
    help="Quotas: how much principals may use of each broker.",
    epilog=example("tidelog quota set user:orders-writer --produce 10MiB"),
    no_args_is_help=True,
)


@app.command("set", epilog=example("tidelog quota set user:orders-writer --produce 10MiB --requests 500"))
def set_quota(
    principal: str = typer.Argument(
        help="A principal such as user:orders-writer, or '*' for each principal that has no quota of its own."
    ),
    produce: str = typer.Option("", help="Bytes a second that it may append, such as 10MiB."),
    fetch: str = typer.Option("", help="Bytes a second that it may read, such as 50MiB."),
    requests: int = typer.Option(0, min=0, help="Calls and batches a second."),
    calls: int = typer.Option(0, min=0, help="Calls that may run at a time."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Say how much a principal may use of each broker.

    This replaces the quota that the principal has; a limit that is not given does not limit. Above a rate,
    requests are delayed, and then refused with a time after which to try again.
    """
    quota = Quota(
        principal=principal,
        produce_bytes_per_second=size_bytes(produce, "--produce") if produce else 0,
        fetch_bytes_per_second=size_bytes(fetch, "--fetch") if fetch else 0,
        requests_per_second=requests,
        calls_max=calls,
    )
    quota.check()
    connected(server, lambda client: client.set_quota(quota))
    if output is Output.JSON:
        print_json(asdict(quota))
    else:
        sys.stdout.write(f"{principal} has a quota now\n")


@app.command("list", epilog=example("tidelog quota list"))
def list_quotas(server: str = SERVER, output: Output = OUTPUT) -> None:
    """List the quotas."""
    quotas = connected(server, lambda client: client.list_quotas())
    if output is Output.JSON:
        print_json([asdict(quota) for quota in quotas])
        return
    rows = [
        (
            quota.principal,
            _rate(quota.produce_bytes_per_second),
            _rate(quota.fetch_bytes_per_second),
            quota.requests_per_second or "–",
            quota.calls_max or "–",
        )
        for quota in quotas
    ]
    console().print(table(("principal", "produce/s", "fetch/s", "requests/s", "calls"), rows))


@app.command("delete", epilog=example("tidelog quota delete user:orders-writer"))
def delete(
    principal: str = typer.Argument(help="The principal that `quota list` shows."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Take the quota of a principal away.

    The quota of '*' holds for it then, if there is one.
    """
    connected(server, lambda client: client.delete_quota(principal))
    if output is Output.JSON:
        print_json({"principal": principal})
    else:
        sys.stdout.write(f"{principal} has no quota of its own any more\n")


def _rate(count: int) -> str:
    return show_bytes(count) if count else "–"
