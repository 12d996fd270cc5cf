"""How a job ends: its exit codes, and the signals that ask it to stop.

A signal only leaves a note. The job looks at the note between its steps, at least once a second: an exception
out of a signal handler could come in the middle of a call to Java, or be lost in a finalizer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import Final

LOOK_SECONDS: Final = 1.0
"""How long a stop may wait for its notice."""


class Exit(IntEnum):
    """The exit codes."""

    DONE = 0
    FAILED = 1
    """A retry does not mend it."""
    BAD_CONFIGURATION = 2
    BAD_MOMENT = 75
    """A later run may succeed (EX_TEMPFAIL of sysexits.h)."""
    INTERRUPTED = 130
    TERMINATED = 143


_CODES: Final = {signal.SIGTERM: Exit.TERMINATED, signal.SIGINT: Exit.INTERRUPTED}


class Stopped(BaseException):
    """The process must stop. Not an `Exception`, so that nothing on the way takes it for a failure."""

    def __init__(self, code: Exit) -> None:
        super().__init__(code.name)
        self.code = code


class Stop:
    """Whether a signal has asked the process to stop."""

    def __init__(self) -> None:
        self.asked: Exit | None = None
        """The code of the signal."""

    def __repr__(self) -> str:
        return f"<Stop asked={self.asked}>"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes SIGTERM and SIGINT in this block; raises `Stopped` at its beginning and its end if asked.

        May be nested: a Spark session installs a handler of its own, which an inner block replaces.
        """
        before = {number: signal.signal(number, self._note) for number in _CODES}
        try:
            self.check()
            yield
            self.check()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raises `Stopped` if a signal has asked for it."""
        if self.asked is not None:
            raise Stopped(self.asked)

    def wait(self, seconds: float) -> None:
        """Waits; raises `Stopped` soon after a signal."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, LOOK_SECONDS))
        self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = self.asked or _CODES[signal.Signals(number)]
