"""CPU and memory of processes, and how busy other programs keep the machine. All from /proc.

The CPU time of a process tree is the time of its living members and of their children that have ended. So a
server that was stopped meanwhile is still counted, with its parent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

QUIET_CPUS_MAX = 0.15
"""With more foreign load than this a figure is doubtful. CPUs."""

QUIET_WAIT_SECONDS_MAX = 3.0
"""How long to wait for the machine to calm down before a measurement."""


def busy_seconds(stat: str) -> float:
    """CPU seconds spent in processes since boot, from the text of /proc/stat.

    Not idle, waiting for disks, interrupts or stolen; guests are in user time already.
    """
    first = stat.split("\n", 1)[0].split()
    if first[0] != "cpu":
        raise ValueError("/proc/stat does not begin with the line of all CPUs")
    user, nice, system = (int(field) for field in first[1:4])
    return (user + nice + system) / TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/PID/stat that are used here."""

    pid: int
    parent: int
    own_seconds: float
    ended_children_seconds: float

    @classmethod
    def parse(cls, text: str) -> ProcessStat:
        pid, _, rest = text.partition(" (")
        # The name may hold spaces and parentheses; the fields follow the last parenthesis.
        fields = rest.rpartition(")")[2].split()
        ticks = [int(field) for field in fields[11:15]]
        return cls(
            int(pid),
            int(fields[1]),
            (ticks[0] + ticks[1]) / TICKS_PER_SECOND,
            (ticks[2] + ticks[3]) / TICKS_PER_SECOND,
        )


def _all_processes() -> Iterator[ProcessStat]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                yield ProcessStat.parse((entry / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue


def tree_seconds(root: int) -> float:
    """CPU seconds of a process and of all processes below it, ended children included."""
    processes = {process.pid: process for process in _all_processes()}
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        found = processes.get(pid)
        if found is not None:
            total += found.own_seconds + found.ended_children_seconds
        waiting += children.get(pid, ())
    return total


def process_seconds(pid: int) -> float:
    """CPU seconds of one process, all its threads."""
    return ProcessStat.parse((PROC / str(pid) / "stat").read_text()).own_seconds


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory of a process now and at its highest. Megabytes."""
    fields = {}
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = value
    return tuple(int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def io_counts(pid: int) -> dict[str, int]:
    """Bytes that a process has read and written: `rchar` through system calls, `read_bytes` from disks, …"""
    lines = (PROC / str(pid) / "io").read_text().splitlines()
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}


class ForeignLoad:
    """CPUs that programs outside this process tree kept busy between `begin` and `end`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._at, self._busy, self._own = monotonic(), self._busy_now(), tree_seconds(os.getpid())

    def end(self) -> float:
        passed = monotonic() - self._at
        busy = self._busy_now() - self._busy
        own = tree_seconds(os.getpid()) - self._own
        return max(0.0, busy - own) / passed if passed else 0.0

    @staticmethod
    def _busy_now() -> float:
        return busy_seconds((PROC / "stat").read_text())


class IdleCpu:
    """The idle share of the processors since the object was made."""

    def __init__(self) -> None:
        self._at, self._busy = monotonic(), busy_seconds((PROC / "stat").read_text())

    def percent(self) -> float:
        passed = monotonic() - self._at
        busy = busy_seconds((PROC / "stat").read_text()) - self._busy
        return max(0.0, 100 * (1 - busy / (passed * len(os.sched_getaffinity(0)))))


def settle(seconds_max: float = QUIET_WAIT_SECONDS_MAX) -> None:
    """Flushes written data, so that no contender pays for another one's, and waits for a quiet machine."""
    os.sync()
    deadline = monotonic() + seconds_max
    while monotonic() < deadline:
        load = ForeignLoad()
        sleep(0.3)
        if load.end() <= QUIET_CPUS_MAX:
            return


def describe() -> dict[str, object]:
    """The facts of the machine that a reader of the figures needs."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in (PROC / "cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": model,
        "memory_mb": round(memory / 1e6),
        "kernel": os.uname().release,
    }
