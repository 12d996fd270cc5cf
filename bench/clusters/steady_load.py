"""A producer at a fixed rate, a process of its own that prints when each record was acknowledged.

Every contender has a program for it. The programs print `A <ns since the epoch>` for an acknowledgement and
`E <what>` for an error, and end with their standard input. `bench.clusters.failover` looks for gaps.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time_ns

from bench.harness.processes import ROOT, STOP_SECONDS_MAX, Failed
from tidelog.cli.local.processes import start
from tidelog.cli.local.waiting import holds_within

RATE = 200
"""Records per second: few enough that the processors idle for most of the time."""

FLOW_SHARE_MIN = 0.8
"""Acknowledgements flow if they come at this share of the rate at least."""

LOOK_SECONDS = 0.05


def widest_gap_s(acknowledged_ns: Sequence[int], event_ns: int) -> float:
    """The longest time between two neighbours, of which the later one came after the event. Seconds."""
    moments = sorted(acknowledged_ns)
    return max((b - a for a, b in pairwise(moments) if b > event_ns), default=0) / 1e9


def flow(acknowledged_ns: Sequence[int], now_ns: int, seconds: float) -> bool:
    """Whether acknowledgements came at nearly the full rate for the last `seconds`."""
    since = now_ns - round(seconds * 1e9)
    return sum(moment >= since for moment in acknowledged_ns) >= FLOW_SHARE_MIN * RATE * seconds


class NotInTime(Failed):
    """A condition did not hold in time."""


class Load:
    """The producer's process and what it has printed so far; a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._acknowledged: list[int] = []
        self._errors: list[str] = []
        self._folder = TemporaryDirectory(prefix="bench-load-")
        folder = Path(self._folder.name)
        self._child = start(
            "load", command, folder / "log", stdin=subprocess.PIPE, stdout=folder / "lines", folder=ROOT
        )
        self._lines = (folder / "lines").open("rb")
        self._begun = b""
        """The part of a line that has no end yet."""

    def _take(self) -> None:
        """Takes the lines that were printed since the last call."""
        if self._lines.closed:
            return
        *lines, self._begun = (self._begun + self._lines.read()).split(b"\n")
        for line in lines:
            kind, _, text = line.decode(errors="replace").strip().partition(" ")
            if kind == "A":
                self._acknowledged.append(int(text))
            elif kind == "E":
                self._errors.append(text)

    def acknowledged(self) -> list[int]:
        self._take()
        return list(self._acknowledged)

    def errors(self) -> list[str]:
        self._take()
        return list(self._errors)

    def flows(self, seconds: float) -> bool:
        return flow(self.acknowledged(), time_ns(), seconds)

    def wait(self, done: Callable[[], bool], seconds_max: float, what: str) -> None:
        """Raises `NotInTime`, or `Failed` if the load ends."""
        is_done = False

        def done_or_ended() -> bool:
            nonlocal is_done
            is_done = done()
            return is_done or not self._child.running

        if not holds_within(done_or_ended, seconds_max, pause=LOOK_SECONDS):
            raise NotInTime(f"{what} took more than {seconds_max:g} s; {self.errors()[-3:]}")
        if not is_done:
            code, end = self._child.process.returncode, self._child.output()[-1000:]
            raise Failed(f"the load ended with {code}; {self.errors()[-3:]}\n{end}")

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.process.stdin is not None
        self._child.process.stdin.close()
        try:
            self._child.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._take()
        self._lines.close()
        self._folder.cleanup()
