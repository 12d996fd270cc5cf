"""A stop signal has an effect, whatever becomes of the first exception."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from tidelog.cli.errors import Exit
from tidelog.cli.local import processes as _processes
from tidelog.cli.local.processes import Signals

WAIT_SECONDS_MAX = 10.0


def test_a_stop_whose_exception_was_lost_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "AGAIN_SECONDS", 0.5)
    signals = Signals()

    with signals.caught():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            # Nobody sets it: only the stop ends the wait.
            threading.Event().wait(WAIT_SECONDS_MAX)
        signals.ignore()
        assert signals._timer is not None
        assert not signals._timer.is_alive(), "nothing comes later"


def test_a_stop_that_was_put_off_is_raised_when_the_block_ends() -> None:
    signals = Signals()

    with signals.caught(), pytest.raises(KeyboardInterrupt), signals.held():
        signal.raise_signal(signal.SIGTERM)
    assert signals._timer is not None
    assert not signals._timer.is_alive(), "nothing comes later"


LOST = """
import signal
import subprocess
import sys
import sys

class Lost:
    def __del__(self):
        # Python drops an exception that is raised in here.
        signal.raise_signal(signal.SIGINT)

class OnImport:
    def find_spec(self, name, path=None, target=None):
        if name == "tidelog.cli.shell":
            Lost()

sys.meta_path.insert(0, OnImport())
sys.argv = ["tidelog", "--version"]
from tidelog.cli import main
main()
"""


def test_ctrl_c_while_the_program_starts_ends_it_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (Exit.INTERRUPTED, "", "")
