"""Servers and clients as processes of their own: free ports, own folders, ended by pid."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".build" / "bench"
"""What is built or fetched once: programs, jars."""

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
CLIENT_SECONDS_MAX = 120.0


class Failed(Exception):
    """A server or client did not do what it was started for; the message has its last words."""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether somebody listens on a loopback port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


class Server:
    """A process that serves until it is stopped, with a folder that goes with it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._parent = folder
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: Callable[[], bool] = lambda: True
        self._log_start = 0
        """Where in the log file the words of this run begin. Bytes."""

    @property
    def folder(self) -> Path:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=self._parent)
        return Path(self._directory.name)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What this run has said."""
        path = self.folder / "server.log"
        data = path.read_bytes() if path.exists() else b""
        return data[self._log_start :].decode(errors="replace")

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

        One that was told to end is waited for.
        """
        self._ready = ready
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)
        path = self.folder / "server.log"
        self._log_start = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
            )

    def wait_ready(self) -> None:
        """Raises `Failed` with its last words if it ends instead, or takes too long."""
        assert self._process is not None
        deadline = monotonic() + READY_SECONDS_MAX
        while not self._ready():
            if self._process.poll() is not None or monotonic() > deadline:
                words = self.log()[-2000:]
                self.stop()
                raise Failed(f"{self.name} did not start:\n{words}")
            sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """Sends it and does not wait."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ends the process, by force if it must be, and removes its folder."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()


def run(command: Sequence[str], *, seconds_max: float = CLIENT_SECONDS_MAX, cwd: Path = ROOT) -> str:
    """What a client printed; raises `Failed` with its last words if it failed or hung."""
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


def run_for_json(command: Sequence[str], *, seconds_max: float = CLIENT_SECONDS_MAX) -> dict[str, Any]:
    """The JSON object on the last line that a client printed."""
    lines = run(command, seconds_max=seconds_max).strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise Failed(f"{' '.join(command[:6])} … printed no result") from None
    assert isinstance(found, dict)
    return found


def python(module: str, *arguments: object) -> list[str]:
    """The command that runs one of our modules."""
    return [sys.executable, "-m", module, *(str(argument) for argument in arguments)]
