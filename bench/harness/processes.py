"""Servers and clients as processes of their own, each server with a folder.

Servers are `tidelog.cli.local.processes`, as those of `tidelog dev` are: no server outlives the run.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.cli.local.processes import Child, ChildFailed, free_ports, python_module, start

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".build" / "bench"
"""Holds what is built or fetched once: programs, jars."""

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
CLIENT_SECONDS_MAX = 120.0


class Failed(Exception):
    """A server or client did not do what it was started for; the message has the end of its output."""


def free_port() -> int:
    """A loopback port on which no process listens now."""
    (port,) = free_ports(1)
    return port


def accepts(port: int) -> bool:
    """Whether a process listens on a loopback port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


class Server:
    """A process that serves until it is stopped, with a folder that is removed with it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._parent = folder
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._started: Child | None = None
        self._ready: Callable[[], bool] = lambda: True

    @property
    def folder(self) -> Path:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=self._parent)
        return Path(self._directory.name)

    @property
    def _child(self) -> Child:
        assert self._started is not None, f"{self.name} was not started"
        return self._started

    @property
    def pid(self) -> int:
        return self._child.process.pid

    @property
    def running(self) -> bool:
        return self._started is not None and self._started.running

    def log(self) -> str:
        """The output of this run."""
        return "" if self._started is None else self._started.output()

    def launch(
        self, command: Sequence[str], ready: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> None:
        """Starts the process and waits until `ready`."""
        self.spawn(command, ready, env)
        self.wait_ready()

    def spawn(
        self, command: Sequence[str], ready: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> None:
        """Starts the process; `wait_ready` waits: members of a cluster wait for each other.

        A process of an earlier run that was told to end is waited for.
        """
        self._ready = ready
        if self._started is not None:
            self._started.process.wait(STOP_SECONDS_MAX)
        log, env = self.folder / "server.log", {**os.environ, **(env or {})}
        self._started = start(self.name, command, log, env=env, folder=self.folder)

    def wait_ready(self) -> None:
        """Raises `Failed` with the end of the log if the server ends, or takes too long."""
        try:
            self._child.wait_ready(self._ready, READY_SECONDS_MAX)
        except ChildFailed as failure:
            end = self.log()[-2000:]
            self.stop()
            raise Failed(f"{failure}\n{end}") from None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal and does not wait."""
        self._child.send_signal(number)

    def wait_ended(self) -> None:
        """Returns when the process has ended; `signal` came before."""
        self._child.process.wait()

    def stop(self) -> None:
        """Ends the process, by force if it must be, and removes its folder."""
        child, self._started = self._started, None
        if child is not None:
            child.stop(STOP_SECONDS_MAX)
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()


def run(command: Sequence[str], *, seconds_max: float = CLIENT_SECONDS_MAX, cwd: Path = ROOT) -> str:
    """What a client printed; raises `Failed` with the end of its output if it failed or hung."""
    process = subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} took more than {seconds_max:g} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode:
        raise Failed(f"{' '.join(command[:6])} … ended with {process.returncode}: {(err or out)[-2000:]}")
    return out


def run_for_json(command: Sequence[str]) -> dict[str, Any]:
    """The JSON object on the last line that a client printed."""
    lines = run(command).strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise Failed(f"{' '.join(command[:6])} … printed no result") from None
    assert isinstance(found, dict)
    return found


def python(module: str, *arguments: object) -> list[str]:
    """The command that runs one of our modules."""
    return python_module(module, *(str(argument) for argument in arguments))
