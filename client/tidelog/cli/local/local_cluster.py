"""A NATS server and brokers on this machine, as `tidelog dev` and `tidelog demo` run them.

One broker runs alone. Several are a cluster: the folder of the first broker is formatted once, explicitly,
and the others join by seeds (M1). The folder of a single broker can become that of the first of several.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.cli.errors import Exit, fail
from tidelog.cli.local.nats_server import find_nats_server, is_serving
from tidelog.cli.local.processes import Child, Signals, guarded, python_module, start

NATS_READY_SECONDS_MAX = 15.0
BROKER_READY_SECONDS_MAX = 60.0
"""A broker that has to recover much data after a crash takes long."""

BROKER_STOP_SECONDS_MAX = 30.0
NATS_STOP_SECONDS_MAX = 5.0

BROKERS_MAX = 9


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The ports of one broker."""

    grpc: int
    http: int
    peers: int


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the NATS server and of all brokers."""

    host: str
    nats_port: int
    brokers: tuple[BrokerPorts, ...]
    """By broker id, from 0."""

    @classmethod
    def of(cls, host: str, ports: Sequence[int]) -> Addresses:
        """From a list of ports: one for the NATS server, then three for each broker."""
        nats_port, *others = ports
        triples = zip(others[::3], others[1::3], others[2::3], strict=True)
        return cls(host, nats_port, tuple(BrokerPorts(*triple) for triple in triples))

    @property
    def server(self) -> str:
        return self.server_of(0)

    @property
    def servers(self) -> list[str]:
        return [self.server_of(broker) for broker in range(len(self.brokers))]

    @property
    def http(self) -> str:
        return self.http_of(0)

    @property
    def nats(self) -> str:
        return f"nats://{self.host}:{self.nats_port}"

    def server_of(self, broker: int) -> str:
        return f"{self.host}:{self.brokers[broker].grpc}"

    def http_of(self, broker: int) -> str:
        return f"http://{self.host}:{self.brokers[broker].http}"

    def peers_of(self, broker: int) -> str:
        return f"{self.host}:{self.brokers[broker].peers}"


def check_package(module: str, extra: str, what: str) -> None:
    """Ends the command if an optional package is not installed."""
    if importlib.util.find_spec(module) is None:
        fail(f"{what} is not installed; install it with: pip install 'tidelog[{extra}]'", Exit.ENVIRONMENT)


def check_broker_installed() -> None:
    """Ends the command if the broker, or a package that it needs, is not installed."""
    for module in ("tidelog_broker", "structlog", "msgspec", "uvloop", "pydantic_settings"):
        check_package(module, "broker", "the broker")


def check_writable(folder: Path) -> None:
    """Makes a folder if it does not exist; ends the command if nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        fail(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --data", Exit.ENVIRONMENT
        )


def folder_name(broker: int) -> str:
    """The data directory of a broker, below the cluster's folder."""
    return "broker" if broker == 0 else f"broker-{broker}"


def brokers_in(folder: Path) -> int:
    """How many brokers have data in a cluster's folder."""
    found = [broker for broker in range(BROKERS_MAX) if (folder / folder_name(broker)).exists()]
    return max(found, default=-1) + 1


class LocalCluster:
    """The processes of one cluster. `stop` stops them, the brokers first."""

    def __init__(
        self, folder: Path, addresses: Addresses, signals: Signals, *, logs_kept: bool = True
    ) -> None:
        self.folder = folder
        self._logs_kept = logs_kept
        self.addresses = addresses
        self._signals = signals
        self._env: Mapping[str, str] | None = None
        self.nats: Child | None = None
        self.brokers: dict[int, Child] = {}
        """The brokers that were started, by broker id."""

    @property
    def children(self) -> list[Child]:
        """All processes that were started, the NATS server first."""
        return [*([self.nats] if self.nats is not None else []), *self.brokers.values()]

    @property
    def count(self) -> int:
        return len(self.addresses.brokers)

    def start_nats(self) -> None:
        """Starts the NATS server and returns when it serves."""
        at = self.addresses
        argv = [find_nats_server(), "-a", at.host, "-p", str(at.nats_port)]
        with self._signals.held():
            self.nats = self._start("NATS server", argv, "nats.log")
        self.nats.wait_ready(lambda: is_serving(at.host, at.nats_port), NATS_READY_SECONDS_MAX)

    def launch_brokers(self, env: Mapping[str, str] | None = None) -> None:
        """Starts every broker and does not wait; formats the first data directory if none is (M1)."""
        self._env = env
        if not any((self.data_of(broker) / "meta.json").exists() for broker in range(self.count)):
            self._format(self.data_of(0))
        for broker in range(self.count):
            self.launch(broker)

    def launch(self, broker: int) -> None:
        """Starts a broker, or starts it again after it ended, and does not wait."""
        with self._signals.held():
            # A broker that is started again takes the place of the process that ended.
            self.brokers[broker] = self._start(
                self.name_of(broker), self._command(broker), f"{folder_name(broker)}.log"
            )

    def wait_ready(self, broker: int) -> None:
        """Returns when a broker serves; ends the command if it ends or takes too long."""
        self.brokers[broker].wait_ready(lambda: self.is_ready(broker), BROKER_READY_SECONDS_MAX)

    def name_of(self, broker: int) -> str:
        return "broker" if self.count == 1 else f"broker {broker}"

    def data_of(self, broker: int) -> Path:
        return self.folder / folder_name(broker)

    def _command(self, broker: int) -> list[str]:
        at = self.addresses
        ports = at.brokers[broker]
        argv = python_module(
            "tidelog_broker", "run",
            "--data-dir", str(self.data_of(broker)),
            "--listener", f"internal={at.server_of(broker)}",
            "--http", f"{at.host}:{ports.http}",
            "--nats", at.nats,
        )  # fmt: skip
        if self.count > 1:
            seeds = ",".join(at.peers_of(other) for other in range(self.count) if other != broker)
            argv += ["--broker-id", str(broker), "--peer-listener", at.peers_of(broker), "--seeds", seeds]
        return argv

    def _format(self, data: Path) -> None:
        done = subprocess.run(
            guarded(python_module("tidelog_broker", "format", "--data-dir", str(data))),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self._env, check=False,
            process_group=0,
        )  # fmt: skip
        if done.returncode:
            fail(f"the data directory could not be formatted: {done.stderr.strip() or done.stdout.strip()}")

    def _start(self, name: str, argv: list[str], log: str) -> Child:
        path = self.folder / log
        if path.exists():
            path.replace(path.with_suffix(".log.1"))
        child = start(name, argv, path, env=self._env)
        child.log_kept = self._logs_kept
        return child

    def is_ready(self, broker: int) -> bool:
        try:
            url = f"{self.addresses.http_of(broker)}/readyz"
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 http, to its own broker
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """Kills everything at once, for data that nobody needs later."""
        children, self.brokers, self.nats = self.children, {}, None
        for child in children:
            child.kill()

    def stop(self) -> list[str]:
        """Stops all brokers, then the NATS server; returns the names of processes that had to be killed."""
        brokers, self.brokers = self.brokers, {}
        for child in brokers.values():
            child.ask_to_stop()
        killed = [child.name for child in brokers.values() if not _stopped(child, BROKER_STOP_SECONDS_MAX)]
        nats, self.nats = self.nats, None
        if nats is not None and not _stopped(nats, NATS_STOP_SECONDS_MAX):
            killed.append(nats.name)
        return killed


def _stopped(child: Child, seconds_max: float) -> bool:
    with contextlib.suppress(ProcessLookupError):
        return child.stop(seconds_max)
    return True
