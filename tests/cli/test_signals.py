"""A stop signal has an effect, whatever becomes of the first exception."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tidelog.cli import _processes
from tidelog.cli._processes import Signals


def stop_and_wait(seconds: float = 10.0) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)


def test_a_stop_whose_exception_was_lost_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "AGAIN_SECONDS", 0.02)
    signals = Signals()

    with signals.caught():
        with pytest.raises(KeyboardInterrupt):
            stop_and_wait()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)
        signals.ignore()
        time.sleep(0.1)


def test_a_stop_that_was_put_off_is_raised_when_the_block_ends() -> None:
    signals = Signals()

    with signals.caught(), pytest.raises(KeyboardInterrupt), signals.held():
        stop_and_wait(0.01)
    assert signals._timer is not None
    assert signals._timer.finished.is_set(), "nothing comes later"
