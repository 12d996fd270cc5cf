"""Processes that outlive the program that started them: recorded, found again, and ended.

A record holds the process id and the start time, so that a process that later gets the same id is never
signalled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psutil

LOOK_SECONDS: Final = 0.1
KILL_SECONDS: Final = 0.01
LAST_LINES: Final = 15


class ClusterError(Exception):
    """A precondition is not met; the message says what would be right."""


class Processes:
    """The processes: records in one folder, logs in another."""

    def __init__(self, records: Path, logs: Path) -> None:
        self._records = records
        self._logs = logs

    def __repr__(self) -> str:
        return f"<Processes {self._records}>"

    def names(self) -> list[str]:
        return sorted(path.name for path in self._records.iterdir()) if self._records.exists() else []

    def start(self, name: str, command: Sequence[str | Path]) -> None:
        self._records.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        program = shutil.which(str(command[0]))
        if program is None:
            raise ClusterError(f"The program {command[0]} does not exist.")
        appended = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            program,
            [*map(str, command)],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, self._log(name), appended, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        (self._records / name).write_text(f"{pid} {psutil.Process(pid).create_time()}")

    def pid(self, name: str) -> int:
        """Raises `ClusterError` if the process does not run."""
        found = self._found(name)
        if found is None:
            raise ClusterError(f"{name} does not run. Check that the cluster is started.")
        return found.pid

    def is_running(self, name: str) -> bool:
        return self._found(name) is not None

    def kill(self, name: str) -> None:
        """Kills the process if it runs. It gets no chance to end gracefully: its later output is discarded
        too."""
        while (found := self._found(name)) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.kill()
            time.sleep(KILL_SECONDS)
        (self._records / name).unlink(missing_ok=True)

    def wait_until(self, condition: Callable[[], bool], what: str, name: str, seconds: float) -> None:
        """Waits for a condition. Raises `ClusterError` with the end of `name`'s log if the process ends or
        the time is over."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.is_running(name):
                raise ClusterError(f"{name} ended before {what}:\n{self._end_of_log(name)}")
            if time.monotonic() > deadline:
                late = f"{what}: not within {seconds:g} s."
                raise ClusterError(f"{late} The end of the log of {name}:\n{self._end_of_log(name)}")
            time.sleep(LOOK_SECONDS)

    def _found(self, name: str) -> psutil.Process | None:
        """A zombie counts as ended: only the first process of the system reaps it, at some later time."""
        try:
            number, began = (self._records / name).read_text().split()
            process = psutil.Process(int(number))
            same = process.create_time() == float(began) and process.status() != psutil.STATUS_ZOMBIE
        except (FileNotFoundError, psutil.NoSuchProcess):
            return None
        return process if same else None

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _end_of_log(self, name: str) -> str:
        lines = self._log(name).read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])
