"""``tidelog cluster recover``: the metadata goes on with one voter, by the broker's own code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer

from tidelog.cli.errors import Exit, fail
from tidelog.cli.local.local_cluster import check_broker_installed
from tidelog.cli.local.processes import python_module
from tidelog.cli.output import OUTPUT, Output, console, example, facts, print_json

EXAMPLE = "tidelog cluster recover --data-dir /var/lib/tidelog --force"

BROKER = "tidelog_broker"
"""The broker's module that does the work, in a process of its own."""


def add_to(app: typer.Typer) -> None:
    """Adds this command."""
    app.command(epilog=example(EXAMPLE))(recover)


def recover(
    data_dir: str = typer.Option(
        ..., "--data-dir", help="The data directory of a voter that is left, stopped."
    ),
    force: bool = typer.Option(False, "--force", help="Do it. Without, nothing is changed, only shown."),
    start_over: bool = typer.Option(
        False,
        "--start-over",
        help="Instead: set this broker's metadata log aside, to learn from a cluster that was recovered on "
        "another voter.",
    ),
    output: Output = OUTPUT,
) -> None:
    """When most voters are lost for good: make one that is left the only voter of the metadata.

    Run it on the machine of a stopped broker that votes. Without --force it shows what its log holds: of
    the voters that are left, choose the one with the greatest last entry. Changes of the metadata that
    only the lost ones had are lost; records are not touched. The lost brokers must never come back with
    their old data directories. A broker whose metadata log goes on beyond the recovered one sets it aside
    when it starts; one that voted does so only by --start-over.
    """
    check_broker_installed()
    if not data_dir or not Path(data_dir).is_dir():
        fail(f"there is no folder {data_dir!r}", Exit.NOT_FOUND)
    if force and start_over:
        fail("--force and --start-over exclude each other; give one of them", Exit.USAGE)
    report = _run(data_dir, ["--force"] if force else ["--start-over"] if start_over else [])
    if output is Output.JSON:
        print_json(report)
        return
    console().print(
        facts(
            [
                ("cluster", report["cluster_id"]),
                ("broker", report["broker_id"]),
                ("voters", _ids(report["voters"])),
                ("last entry", f"{report['last_index']} of term {report['last_term']}"),
                ("committed", f"at least up to {report['committed']}"),
                ("brokers", _ids(report["brokers"])),
                ("streams", report["streams"]),
            ]
        )
    )
    done, *warnings = report["sentences"]
    sys.stdout.write(f"\n{done}\n")
    for warning in warnings:
        sys.stderr.write(f"tidelog: {warning}\n")


def _run(data_dir: str, options: list[str]) -> dict[str, Any]:
    words = ["cluster-recover", "--data-dir", data_dir, "--json", *options]
    done = subprocess.run(
        python_module(BROKER, *words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        fail((said[-1] if said else "it ended without a word").removeprefix("tidelog-broker: "))
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _ids(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers))
