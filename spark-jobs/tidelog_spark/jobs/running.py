"""A job from its start to its exit code: attempts, waiting between them, and the reason of the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from tidelog.errors import InvalidRequest
from tidelog_spark.failures import sentence_of
from tidelog_spark.jobs.moments import passes, tidelog_class
from tidelog_spark.jobs.reporting import Report, last_words, say
from tidelog_spark.jobs.stopping import Exit, Stop, Stopped

ATTEMPTS_MAX: Final = 6
"""Attempts in a row without a finished batch. Then the process ends, and its owner decides."""

WAIT_SECONDS_FIRST: Final = 1.0
WAIT_SECONDS_MAX: Final = 30.0


class Attempt(Protocol):
    """One run of the query."""

    failure: Exception | None
    succeeded: int

    def run(self) -> None: ...


def run_attempts(
    begin: Callable[[], Attempt], report: Report, *, wait: Callable[[float], None] = time.sleep
) -> None:
    """Runs attempts until one ends by itself; raises the error that is not worth another attempt.

    Waits longer after each failure in a row. A finished batch begins the counting again.
    """
    failures = 0
    while True:
        attempt = begin()
        report.attempts += 1
        try:
            attempt.run()
            return
        except Exception as error:
            reason = attempt.failure or error
            failures = 1 if attempt.succeeded else failures + 1
            if not passes(reason) or failures >= ATTEMPTS_MAX:
                raise reason from None
            seconds = min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2 ** (failures - 1))
            seconds *= random.uniform(0.5, 1.0)
            say("retry", reason=sentence_of(reason), attempt=failures, waitSeconds=round(seconds, 1))
            wait(seconds)


def exit_code_of(work: Callable[[Stop], None], termination_log: Path | None) -> Exit:
    """Does the work; the exit code, with the last words of a failed run on standard error."""
    stop = Stop()
    try:
        with stop.listening():
            work(stop)
    except (Stopped, KeyboardInterrupt, Exception) as error:
        # What fails after a signal fails because Java got the signal, too. A session that begins has Spark's
        # handler for a moment.
        asked = Exit.INTERRUPTED if isinstance(error, KeyboardInterrupt) else stop.asked
        if asked is not None:
            say("stopped", code=int(asked))
            last_words(
                "the job was stopped; run it again with the same checkpoint to continue", termination_log
            )
            return asked
        last_words(sentence_of(error), termination_log)
        ours = tidelog_class(error)
        if ours is not None and issubclass(ours, InvalidRequest):
            return Exit.BAD_CONFIGURATION
        return Exit.BAD_MOMENT if passes(error) else Exit.FAILED
    return Exit.DONE
