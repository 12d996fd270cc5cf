"""``tidelog verify``: checks a data directory, a running cluster's replicas, or a test load's history.

The broker's own code checks a directory offline. `replicas` reads the replicas of a cluster and compares
them. `tidelog.history` judges a history.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer

from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.local.local_cluster import check_broker_installed
from tidelog.cli.local.processes import python_module
from tidelog.cli.output import OUTPUT, Output, console, facts, print_json
from tidelog.cli.progress import Counter
from tidelog.cli.values import show_bytes
from tidelog.cli.verify.history import judge, show_judgement
from tidelog.cli.verify.replicas import show_cluster, verify_cluster
from tidelog.wording import count_of

EXAMPLE = "tidelog verify ~/.local/share/tidelog/dev/broker"

CHECKER = "tidelog_broker.offline.verify"
"""The broker's module that does the work, in a process of its own."""

_CODES = {3: Exit.ENVIRONMENT, 4: Exit.NOT_FOUND, 5: Exit.FAILED}
"""By the exit code of that process."""


def verify(
    data_dir: str | None = typer.Argument(
        None, help="A broker's data directory; of tidelog dev it is the folder `broker` below --data."
    ),
    cluster: bool = typer.Option(
        False,
        "--cluster",
        help="Read every replica of every partition of a running cluster and compare them.",
    ),
    stream: str = typer.Option(
        "", "--stream", help="With --cluster: only streams whose whole name matches this regular expression."
    ),
    history: Path | None = typer.Option(
        None, "--history", help="Judge a history file of a test load (`python -m chaos`)."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Check a data directory, a cluster or a history.

    In a data directory that no broker uses, the command checks the checksum of every batch, the epochs, the
    identity files, the checkpoints and the metadata log. It also checks that offsets have no gaps, and that
    indexes point at batches. A note is something that the next start of the broker repairs. In a cluster, the
    command checks that all replicas hold the same records up to the high watermark. In a history, it checks
    that every acknowledged record is in the log, once and in order.

    The command changes nothing. It ends with code 1 if it finds problems, and with code 7 if a broker uses
    the data directory.
    """
    if sum((data_dir is not None, cluster, history is not None)) != 1:
        fail("give exactly one of a data directory, --cluster and --history FILE", Exit.USAGE)
    if stream and not cluster:
        fail("--stream needs --cluster", Exit.USAGE)
    if cluster:
        clean = _verify_cluster(server, stream, output)
    elif history is not None:
        clean = _verify_history(history, output)
    else:
        assert data_dir is not None
        clean = _verify_directory(data_dir, output)
    if not clean:
        raise typer.Exit(Exit.FAILED)


def _verify_cluster(server: str, stream: str, output: Output) -> bool:
    report = connected(server, lambda client: verify_cluster(client, stream))
    if output is Output.JSON:
        print_json(report.as_json())
    else:
        show_cluster(report)
    return not report.problems


def _verify_history(path: Path, output: Output) -> bool:
    report = judge(path)
    if output is Output.JSON:
        print_json(report.as_json())
    else:
        show_judgement(report)
    return report.ok


def _verify_directory(data_dir: str, output: Output) -> bool:
    check_broker_installed()
    if not data_dir:
        # An empty Path would be the current folder.
        fail("the path of the data directory is empty", Exit.USAGE)
    folder = Path(data_dir)
    if not folder.is_dir():
        fail(f"there is no folder {folder}", Exit.NOT_FOUND)
    report = _run(folder)
    if output is Output.JSON:
        print_json(report)
    else:
        _show(report)
    return bool(report["clean"])


def _run(data_dir: Path) -> dict[str, Any]:
    process = subprocess.Popen(
        python_module(CHECKER, str(data_dir), "--progress"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said = []
    try:
        with Counter("bytes read") as counter:
            for line in process.stderr:
                word, *numbers = line.split()
                if word == "progress" and len(numbers) == 2:
                    counter.set_total(int(numbers[1]))
                    counter.set(int(numbers[0]), int(numbers[0]))
                else:
                    said.append(line)
        text = process.stdout.read()
        process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    if process.returncode not in (0, 1) or not text:
        fail(_reason(said), _CODES.get(process.returncode, Exit.FAILED))
    report: dict[str, Any] = json.loads(text)
    return report


def _reason(said: list[str]) -> str:
    return said[-1].strip() if said else "the check ended without a message"


def _show(report: dict[str, Any]) -> None:
    screen = console()
    screen.print(
        facts(
            [
                ("data directory", report["data_directory"]),
                ("cluster", report["cluster_id"]),
                ("broker", report["broker_id"]),
                (
                    "last stop",
                    "clean" if report["stopped_cleanly"] else "not clean, or the broker never started",
                ),
                ("metadata", count_of(report["metadata_entries"], "entry", "entries")),
                (
                    "logs",
                    f"{count_of(report['partitions'], 'partition')}, "
                    f"{count_of(report['segments'], 'segment')}, "
                    f"{show_bytes(report['bytes'])}",
                ),
                (
                    "content",
                    f"{count_of(report['batches'], 'batch', 'batches')}, "
                    f"{count_of(report['records'], 'record')}",
                ),
            ]
        )
    )
    for kind, findings in (("problem", report["problems"]), ("note", report["notes"])):
        for finding in findings:
            screen.print(f"{kind}: {finding['path']}: {finding['what']}", markup=False)
    count = len(report["problems"])
    sys.stdout.write("\nclean\n" if not count else f"\n{count_of(count, 'problem')}\n")
