"""A NATS server and one broker on loopback, as `tidelog dev` and `tidelog demo` run them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.cli._errors import Exit, fail
from tidelog.cli._nats_server import find_nats_server, is_serving
from tidelog.cli._processes import Child, Signals, python_module, start

NATS_READY_SECONDS_MAX = 15.0
BROKER_READY_SECONDS_MAX = 60.0
"""A broker that recovers much data after a crash takes its time."""

BROKER_STOP_SECONDS_MAX = 30.0
NATS_STOP_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the two listen."""

    host: str
    grpc_port: int
    http_port: int
    nats_port: int

    @property
    def server(self) -> str:
        return f"{self.host}:{self.grpc_port}"

    @property
    def http(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    @property
    def nats(self) -> str:
        return f"nats://{self.host}:{self.nats_port}"


def check_package(module: str, extra: str, what: str) -> None:
    """Ends the command if an optional part of Tidelog is not installed."""
    if importlib.util.find_spec(module) is None:
        fail(f"{what} is not installed: pip install 'tidelog[{extra}]'", Exit.ENVIRONMENT)


def check_broker_installed() -> None:
    for module in ("tidelog_broker", "structlog", "msgspec", "uvloop", "pydantic_settings"):
        check_package(module, "broker", "the broker")


def check_writable(folder: Path) -> None:
    """Makes a folder if need be; ends the command if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        fail(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --data", Exit.ENVIRONMENT
        )


class LocalCluster:
    """See the module; `stop` ends what was started, the broker first."""

    def __init__(
        self, folder: Path, addresses: Addresses, signals: Signals, *, logs_kept: bool = True
    ) -> None:
        self.folder = folder
        self._logs_kept = logs_kept
        self.addresses = addresses
        self._signals = signals
        self._children: list[tuple[Child, float]] = []
        """With the seconds each may take to stop, in the order of starting."""

    @property
    def children(self) -> list[Child]:
        return [child for child, _ in self._children]

    def start_nats(self) -> Child:
        at = self.addresses
        argv = [find_nats_server(), "-a", at.host, "-p", str(at.nats_port)]
        child = self._start("NATS server", argv, "nats.log", None, NATS_STOP_SECONDS_MAX)
        child.wait_ready(lambda: is_serving(at.host, at.nats_port), NATS_READY_SECONDS_MAX)
        return child

    def start_broker(self, env: Mapping[str, str] | None = None) -> Child:
        """Formats the data directory at the first start, and only then (M1)."""
        at, data = self.addresses, self.folder / "broker"
        if not (data / "meta.json").exists():
            self._format(data, env)
        argv = python_module(
            "tidelog_broker", "run",
            "--data-dir", str(data),
            "--listener", f"internal={at.server}",
            "--http", f"{at.host}:{at.http_port}",
            "--nats", at.nats,
        )  # fmt: skip
        child = self._start("broker", argv, "broker.log", env, BROKER_STOP_SECONDS_MAX)
        child.wait_ready(self._broker_ready, BROKER_READY_SECONDS_MAX)
        return child

    def _format(self, data: Path, env: Mapping[str, str] | None) -> None:
        done = subprocess.run(
            python_module("tidelog_broker", "format", "--data-dir", str(data)),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False,
        )  # fmt: skip
        if done.returncode:
            fail(f"the data directory could not be formatted: {done.stderr.strip() or done.stdout.strip()}")

    def _start(
        self, name: str, argv: list[str], log: str, env: Mapping[str, str] | None, stop_seconds_max: float
    ) -> Child:
        with self._signals.held():
            path = self.folder / log
            if path.exists():
                path.replace(path.with_suffix(".log.1"))
            child = start(name, argv, path, env=env)
            child.log_kept = self._logs_kept
            self._children.append((child, stop_seconds_max))
        return child

    def _broker_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.addresses.http}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> list[str]:
        """Stops the broker, then the NATS server; names of those that had to be killed."""
        killed = []
        while self._children:
            child, seconds_max = self._children[-1]
            with contextlib.suppress(ProcessLookupError):
                if not child.stop(seconds_max):
                    killed.append(child.name)
            self._children.pop()
        return killed
