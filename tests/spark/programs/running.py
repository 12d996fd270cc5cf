"""A job as users start it: a program in a process group of its own, which a test may kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidelog.cli.local.waiting import holds_within

SCRIPTS = Path(__file__).parents[3] / "spark-jobs/jobs"

LOOK_SECONDS = 0.001
"""The points at which a job is killed last for milliseconds."""


@contextmanager
def running_job(script: str, settings: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the job; its report, output and temporary files are in the folder. Kill its group at the end."""
    arguments = [sys.executable, str(SCRIPTS / script), "--master", "local[2]"]
    arguments += ["--report", str(folder / "report.json")]
    for setting in settings:
        arguments += ["--set", setting]
    (folder / "tmp").mkdir(exist_ok=True)
    with (folder / "job.log").open("ab") as output:
        running = subprocess.Popen(
            arguments,
            stdout=output,
            stderr=output,
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
            start_new_session=True,
        )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def kill_as_soon_as(
    reached: Callable[[], bool], running: subprocess.Popen[bytes], folder: Path, seconds_max: float
) -> None:
    """Kill the group of a running job when the condition holds; a job that ends before fails the test."""

    def reached_or_ended() -> bool:
        return reached() or running.poll() is not None

    in_time = holds_within(reached_or_ended, seconds_max, pause=LOOK_SECONDS)
    assert in_time, (folder / "job.log").read_text()
    assert running.poll() is None, (folder / "job.log").read_text()
    os.killpg(running.pid, signal.SIGKILL)
