"""Measurements of this machine as small messages: real data for the demo to record."""

from __future__ import annotations

import re
import socket
import time
from typing import Any, NamedTuple

import psutil

BUSIEST_MAX = 5
MIB = 1 << 20


class Message(NamedTuple):
    """One measurement. Its NATS subject ends with `kind`."""

    kind: str
    body: dict[str, Any]


class Sampler:
    """Measures what has changed since the last call."""

    def __init__(self) -> None:
        psutil.cpu_percent(percpu=True)
        self._at = time.monotonic()
        self._disk = _disk_bytes()
        self._network = _network_bytes()
        self._processes_at = 0.0
        self._busiest()

    def sample(self) -> list[Message]:
        """Use of cores and memory in percent, of disks and network in MiB/s; once a second, processes."""
        now = time.monotonic()
        seconds, self._at = max(now - self._at, 1e-6), now
        found = [
            _message("cpu", f"core {number}", "used", percent, "%")
            for number, percent in enumerate(psutil.cpu_percent(percpu=True))
        ]
        found.append(_message("memory", "memory", "used", psutil.virtual_memory().percent, "%"))
        disk, network = _disk_bytes(), _network_bytes()
        for kind, before, after in (("disk", self._disk, disk), ("network", self._network, network)):
            for (item, metric), count in after.items():
                rate = max(0, count - before.get((item, metric), count)) / seconds / MIB
                found.append(_message(kind, item, metric, rate, "MiB/s"))
        self._disk, self._network = disk, network
        if now - self._processes_at >= 1:
            self._processes_at = now
            found += [_message("process", name, "cpu", percent, "%") for name, percent in self._busiest()]
        return found

    def _busiest(self) -> list[tuple[str, float]]:
        """Names and percentages of the processes that used most CPU time since the last call."""
        used: dict[str, float] = {}
        for process in psutil.process_iter(["name", "cpu_percent"]):
            percent = process.info["cpu_percent"] or 0.0
            if percent > 0:
                name = process.info["name"] or "?"
                used[name] = used.get(name, 0.0) + percent
        return sorted(used.items(), key=lambda item: -item[1])[:BUSIEST_MAX]


def host_token() -> str:
    """This machine's name as one token of a NATS subject."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().split(".")[0]) or "host"


def _message(kind: str, item: str, metric: str, value: float, unit: str) -> Message:
    body = {"item": item, "metric": metric, "value": round(value, 3), "unit": unit, "at": time.time()}
    return Message(kind, body)


def _disk_bytes() -> dict[tuple[str, str], int]:
    counters = psutil.disk_io_counters()
    if counters is None:
        return {}  # some containers see no disks
    return {("disks", "read"): counters.read_bytes, ("disks", "write"): counters.write_bytes}


def _network_bytes() -> dict[tuple[str, str], int]:
    found = {}
    for name, counters in psutil.net_io_counters(pernic=True).items():
        if counters.bytes_recv or counters.bytes_sent:
            found[name, "in"] = counters.bytes_recv
            found[name, "out"] = counters.bytes_sent
    return found
