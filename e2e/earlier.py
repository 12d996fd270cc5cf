"""The commit before the last change of the chart: what an upgrade begins with.

`python -m e2e.earlier FOLDER` writes its files there, of which `make cluster` builds images.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import typer

ROOT: Final = Path(__file__).parents[1]
CHART: Final = "charts/tidelog"


class NoEarlierChart(Exception):
    """History does not go back so far, as in a clone that is shallow."""


def write(folder: Path) -> None:
    """Raises `NoEarlierChart`."""
    git = ["git", "-C", str(ROOT)]
    changes = subprocess.run([*git, "log", "-2", "--format=%H", "--", CHART], capture_output=True, text=True)
    commits = changes.stdout.split()
    if changes.returncode or len(commits) < 2:
        raise NoEarlierChart(changes.stderr.strip() or "the chart has one commit")
    archive = subprocess.run([*git, "archive", commits[1]], capture_output=True, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def main(folder: Path) -> None:
    """Write the files of the commit before the last change of the chart into FOLDER."""
    try:
        write(folder)
    except NoEarlierChart as error:
        typer.echo(f"there is no earlier chart: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
