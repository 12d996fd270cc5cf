"""Watches the event loop: how long its turns take, and what a long turn was busy with.

One event loop serves all clients, so work that keeps it from its next turn makes all of them wait. The loop
beats every `BEAT_SECONDS`; how much later than due a beat comes is how long the turn before it took,
less the part that had passed when the beat fell due, a beat at most. A thread sleeps until a beat is
overdue by `ALARM_SECONDS`; then it notes what the loop's thread is doing at that moment. When the turn
has ended, the loop logs both.

A turn may be long because of other threads (they share the interpreter's lock) or other processes: then the
code that is named is not the cause, and differs from line to line. So the watch also reports for how much of
the delay the loop's own thread can have run, and for how much it was ready to run and had no processor (Linux
counts both), and for how much the garbage collector ran, which it does in any line where it is due. For the
rest the thread waited for the interpreter's lock, or for a file.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import PurePath
from time import monotonic, thread_time
from types import FrameType
from typing import NamedTuple

import structlog

log = structlog.get_logger(__name__)

BEAT_SECONDS = 0.05
"""Each beat wakes an idle broker: twenty of them a second, with the thread, are some 0.4 % of a core."""

ALARM_SECONDS = 0.05
"""A turn that delays a beat for longer is logged."""

QUIET_SECONDS = 10.0
"""The pause between two log lines; the next line says how many were left out."""

FRAMES_MAX = 8
"""Frames of the stack that are logged, innermost first."""

SCHEDSTAT = "/proc/thread-self/schedstat"
"""Nanoseconds that a thread has run, and that it was ready to run and waited for a processor."""


class Late(NamedTuple):
    """How late a beat was, and what of that time the loop's thread did. Seconds."""

    seconds: float
    ran_max: float
    """It ran for so long, at most: what ran since the beat before may have ended before this beat was due."""
    unscheduled_max: float
    """It waited for a processor for so long, at most; 0 where the system does not say."""
    collected_max: float
    """The garbage collector ran for so long, at most."""


class Times:
    """What the calling thread has spent since it began: it ran, it waited for a processor, the garbage
    collector ran (in whichever thread). Seconds."""

    def __init__(self) -> None:
        self._collecting = self._collected = 0.0
        gc.callbacks.append(self._see_collection)
        try:
            self._file: int | None = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None

    def __call__(self) -> tuple[float, float, float]:
        if self._file is None:
            return thread_time(), 0.0, self._collected
        ran, waited, _ = os.pread(self._file, 100, 0).split()
        return int(ran) / 1e9, int(waited) / 1e9, self._collected

    def close(self) -> None:
        gc.callbacks.remove(self._see_collection)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _see_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = monotonic()
        else:
            self._collected += monotonic() - self._collecting


def _warn(text: str, **facts: object) -> None:
    # Not `log.warning` itself: how lines look is set up after this module is imported.
    log.warning(text, **facts)


class LoopWatch:
    """Measures and logs long turns of one event loop."""

    def __init__(
        self,
        observe: Callable[[Late], None],
        say: Callable[..., None] = _warn,
        quiet_clock: Callable[[], float] = monotonic,
    ) -> None:
        """`observe` gets how late each beat was; `say` a line about a long turn, by `quiet_clock` not too
        often.
        """
        self._loop = asyncio.get_running_loop()
        self._observe = observe
        self._say = say
        self._quiet_clock = quiet_clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the next beat is due. Seconds, monotonic."""
        self._times: Times | None = None
        self._spent = 0.0, 0.0, 0.0
        """The times at the last beat."""
        self.seen: tuple[float, str] | None = None
        """The beat that was overdue, and what the loop did then."""
        self._told_at = float("-inf")
        self._untold = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watches the event loop that runs in the calling thread."""
        self._times = Times()
        self._spent = self._times()
        self._wait()
        self._thread = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="tidelog-loop-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()
        if self._times is not None:
            self._times.close()
            self._times = None

    def _wait(self) -> None:
        self._due = monotonic() + BEAT_SECONDS
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        due, late = self._due, self._late()
        self._wait()
        self._observe(late)
        if late.seconds < ALARM_SECONDS:
            return
        if self._quiet_clock() - self._told_at < QUIET_SECONDS:
            self._untold += 1
            return
        seen = self.seen
        busy_with = seen[1] if seen is not None and seen[0] == due else "unknown: the turn ended too early"
        self._say(
            "a turn of the event loop took long, and every request waited meanwhile",
            seconds=round(late.seconds, 3),
            ran_at_most=round(late.ran_max, 3),
            waited_for_a_processor_at_most=round(late.unscheduled_max, 3),
            collected_garbage_at_most=round(late.collected_max, 3),
            busy_with=busy_with,
            untold=self._untold,
        )
        self._told_at, self._untold = self._quiet_clock(), 0

    def _late(self) -> Late:
        seconds = max(0.0, monotonic() - self._due)
        assert self._times is not None, "it was started"
        before, self._spent = self._spent, self._times()
        since = (now - then for now, then in zip(self._spent, before, strict=True))
        return Late(seconds, *(min(seconds, one) for one in since))

    def _watch(self, ident: int) -> None:
        """Runs in a separate thread: sleeps until the next beat would be overdue."""
        while not self._ended.wait(max(0.0, self._due + ALARM_SECONDS - monotonic())):
            due = self._due
            if monotonic() < due + ALARM_SECONDS:
                continue
            frame = frame_of(ident)
            self.seen = due, stack_line(frame)
            del frame
            # The rest of this turn is of no interest.
            while self._due == due and not self._ended.wait(ALARM_SECONDS):
                pass


_no_collection = threading.Lock()
"""So that of two watches in one process, neither lets the collector go on while the other looks."""


def frame_of(ident: int) -> FrameType | None:
    """Where this thread is now; None: it has ended.

    The garbage collector rests meanwhile. `sys._current_frames` holds a lock of the interpreter that every
    thread needs to begin and to end. In Python 3.11 a collection may run within that call, and with it
    callbacks in Python. These let other threads run, and the first that begins or ends stops the process for
    good (https://github.com/python/cpython/issues/106883; seen in 3.11.7, and never in 3.12 and 3.13).
    """
    with _no_collection:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(ident)
        finally:
            if enabled:
                gc.enable()


def stack_line(frame: FrameType | None) -> str:
    """Where a thread is, innermost first: ``codec.py:142 decode_batch < validation.py:108 …``."""
    found: list[str] = []
    while frame is not None and len(found) < FRAMES_MAX:
        code = frame.f_code
        found.append(f"{PurePath(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(found) or "unknown"
