"""The commit before the last one that changed the chart: an upgrade starts from it.

`python -m e2e.earlier` writes its files, from which `make cluster` builds images.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import typer

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".build" / "before"
CHART: Final = "charts/tidelog"

NONE_EXIT: Final = 3
"""Exit code if there is no such commit, as in a shallow clone; other failures have another code."""


def write(folder: Path) -> bool:
    """Writes the files of that commit to `folder`. Returns whether there is such a commit."""
    git = ["git", "-C", str(ROOT)]
    last = subprocess.run([*git, "log", "-1", "--format=%H", "--", CHART], capture_output=True, text=True)
    before = f"{last.stdout.strip()}^"
    there = subprocess.run([*git, "cat-file", "-e", f"{before}:{CHART}/Chart.yaml"], capture_output=True)
    if there.returncode:
        return False
    archive = subprocess.run([*git, "archive", before], capture_output=True, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return True


def main(folder: Path = FOLDER) -> None:
    """Write the files of the commit before the last one that changed the chart."""
    if not write(folder):
        typer.echo("git has no commit with an earlier chart", err=True)
        raise typer.Exit(NONE_EXIT)


if __name__ == "__main__":
    typer.run(main)
