"""``tidelog cluster recover``: a voter that is left becomes the only one, by the broker's own code."""

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
from tidelog.wording import listed

EXAMPLE = "tidelog cluster recover --data-dir /var/lib/tidelog --force"

BROKER = "tidelog_broker"
"""The broker's module that does the work, in a process of its own."""


def add_to(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command(epilog=example(EXAMPLE))(recover)


def recover(
    data_dir: str = typer.Option(..., "--data-dir", help="The data directory of a stopped voter."),
    force: bool = typer.Option(
        False,
        "--force",
        help="Make this voter the only voter. Without --force and --start-over the command changes nothing.",
    ),
    start_over: bool = typer.Option(
        False,
        "--start-over",
        help="Instead of --force: set this broker's metadata log aside, so that the broker learns from the "
        "cluster that was recovered on another voter.",
    ),
    output: Output = OUTPUT,
) -> None:
    """Recover when most voters are lost for good.

    One of the remaining voters becomes the only voter on the metadata. Run the command on the machine of a
    stopped broker that votes. Without --force it shows what the metadata log of that broker holds. Choose the
    remaining voter with the greatest last entry.

    Changes of the metadata that only the lost voters had are lost. Records do not change. The lost brokers
    must never come back with their old data directories. If another broker has a longer metadata log than the
    recovered voter, that broker sets its log aside when it starts. If that broker was a voter, it does this
    only after --start-over.
    """
    check_broker_installed()
    if not data_dir or not Path(data_dir).is_dir():
        fail(f"there is no folder {data_dir!r}", Exit.NOT_FOUND)
    if force and start_over:
        fail("--force and --start-over exclude each other; give only one of them", Exit.USAGE)
    report = _run(data_dir, ["--force"] if force else ["--start-over"] if start_over else [])
    if output is Output.JSON:
        print_json(report)
        return
    console().print(
        facts(
            [
                ("cluster", report["cluster_id"]),
                ("broker", report["broker_id"]),
                ("voters", listed(report["voters"])),
                ("last entry", f"{report['last_index']} of term {report['last_term']}"),
                ("committed", f"at least up to {report['committed']}"),
                ("brokers", listed(report["brokers"])),
                ("streams", report["streams"]),
            ]
        )
    )
    done, *warnings = report["sentences"]
    sys.stdout.write(f"\n{done}\n")
    for warning in warnings:
        sys.stderr.write(f"tidelog: {warning}\n")


def _run(data_dir: str, options: list[str]) -> dict[str, Any]:
    arguments = ["cluster-recover", "--data-dir", data_dir, "--json", *options]
    done = subprocess.run(
        python_module(BROKER, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        fail((said[-1] if said else "the recovery ended without a message").removeprefix("tidelog-broker: "))
    report: dict[str, Any] = json.loads(done.stdout)
    return report
