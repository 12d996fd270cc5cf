"""``tidelog cluster recover``: the metadata goes on with one voter, by the broker's own code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer

from tidelog.cli._errors import Exit, fail
from tidelog.cli._local_cluster import check_broker_installed
from tidelog.cli._output import OUTPUT, Output, console, example, facts, print_json
from tidelog.cli._processes import python_module

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
    output: Output = OUTPUT,
) -> None:
    """When most voters are lost for good: make one that is left the only voter of the metadata.

    Run it on the machine of a stopped broker that votes. Without --force it shows what its log holds: of
    the voters that are left, choose the one with the greatest last entry. Changes of the metadata that
    only the lost ones had are lost; records are not touched. The lost brokers must never come back with
    their old data directories.
    """
    check_broker_installed()
    if not data_dir or not Path(data_dir).is_dir():
        fail(f"there is no folder {data_dir!r}", Exit.NOT_FOUND)
    report = _run(data_dir, force)
    if output is Output.JSON:
        print_json(report)
        return
    lost = [voter for voter in report["voters"] if voter != report["broker_id"]]
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
    if report["forced"]:
        sys.stdout.write(f"\nbroker {report['broker_id']} is the only voter now; start it\n")
        sys.stderr.write(
            f"tidelog: what only {_ids(lost)} had of the metadata is lost. Never start them with their old "
            "data directories again, or there will be two clusters; unregister those that stay away\n"
        )
    elif report["alone"]:
        sys.stdout.write("\nit is the only voter already: there is nothing to recover\n")
    else:
        sys.stdout.write(f"\nnothing was changed; with --force {_ids(lost)} vote no more\n")


def _run(data_dir: str, force: bool) -> dict[str, Any]:
    words = ["cluster-recover", "--data-dir", data_dir, "--json", *(["--force"] if force else [])]
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
