"""A producer at a fixed rate, a process of its own that says when each record was acknowledged.

Every contender has a program for it; they print `A <ns since the epoch>` for an
acknowledgement and `E <what>` for an error, and end with their standard input.
`bench.failover` looks for gaps.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from time import monotonic, sleep, time_ns

from bench.processes import ROOT, STOP_SECONDS_MAX, Failed

RATE = 200
"""Records per second: little enough that the processors idle for most of the time."""

FLOW_SHARE_MIN = 0.8
"""Of the rate, for acknowledgements to count as flowing."""

LOOK_SECONDS = 0.05


def widest_gap_s(acknowledged_ns: Sequence[int], event_ns: int) -> float:
    """The longest time between neighbours of which the later came after the event. Seconds."""
    moments = sorted(acknowledged_ns)
    return max((b - a for a, b in pairwise(moments) if b > event_ns), default=0) / 1e9


def flow(acknowledged_ns: Sequence[int], now_ns: int, seconds: float) -> bool:
    """Whether for so long acknowledgements have come at nearly the full rate."""
    since = now_ns - round(seconds * 1e9)
    return sum(moment >= since for moment in acknowledged_ns) >= FLOW_SHARE_MIN * RATE * seconds


class NotInTime(Failed):
    """What was waited for has not happened."""


class Load:
    """The producer's process and what it has said so far; a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._lock = Lock()
        self._acknowledged: list[int] = []
        self._errors: list[str] = []
        self._folder = TemporaryDirectory(prefix="bench-load-")
        self._words = Path(self._folder.name) / "words"
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, text = line.strip().partition(" ")
            with self._lock:
                if kind == "A":
                    self._acknowledged.append(int(text))
                elif kind == "E":
                    self._errors.append(text)

    def acknowledged(self) -> list[int]:
        with self._lock:
            return list(self._acknowledged)

    def errors(self) -> list[str]:
        with self._lock:
            return list(self._errors)

    def flows(self, seconds: float) -> bool:
        return flow(self.acknowledged(), time_ns(), seconds)

    def wait(self, done: Callable[[], bool], seconds_max: float, what: str) -> None:
        """Raises `NotInTime`, or `Failed` if the load ends."""
        deadline = monotonic() + seconds_max
        while not done():
            if self._process.poll() is not None:
                said = self._words.read_text(errors="replace")[-1000:]
                raise Failed(f"the load ended with {self._process.returncode}; {self.errors()[-3:]}\n{said}")
            if monotonic() > deadline:
                raise NotInTime(f"{what} took more than {seconds_max:g} s; {self.errors()[-3:]}")
            sleep(LOOK_SECONDS)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(STOP_SECONDS_MAX)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()
