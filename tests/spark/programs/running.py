"""A job as users start it: a program in a process group of its own, which a test may kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "spark-jobs/jobs"


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
    deadline = time.monotonic() + seconds_max
    while not reached():
        assert running.poll() is None, (folder / "job.log").read_text()
        assert time.monotonic() < deadline, (folder / "job.log").read_text()
        time.sleep(0.001)
    os.killpg(running.pid, signal.SIGKILL)
