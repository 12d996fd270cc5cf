"""What a shell gives a program besides text: arguments that are not UTF-8, closed files, signals.

All of it is handled here, once, so that commands need not.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from tidelog.cli.app import run
from tidelog.cli.errors import Exit
from tidelog.cli.values import printable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run_process(arguments: Sequence[str]) -> int:
    """Runs one command line as the command of this process; returns its exit code."""
    refusal = _open_files() or _check_text(arguments)
    if refusal is not None:
        sys.stderr.write(f"tidelog: {refusal}\n")
        return Exit.USAGE
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        # The same way as Ctrl-C: open files are completed and waiting calls end.
        stopped.append(number)
        signal.raise_signal(signal.SIGINT)

    for number in STOP_SIGNALS:
        # A signal that is ignored (nohup) stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)
    code = run(arguments)
    return 128 + stopped[0] if stopped and code in (Exit.OK, Exit.INTERRUPTED) else code


def _open_files() -> str | None:
    """Opens closed standard files, so that no other file gets their numbers; returns a refusal, or None."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        return "standard output is closed; redirect it to /dev/null if you do not want it"
    return None


def _check_text(arguments: Sequence[str]) -> str | None:
    """The refusal of an argument that is not UTF-8; None: all are."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            return (
                f"the argument {printable(os.fsencode(argument))} is not UTF-8; "
                "give these bytes on standard input or with --file"
            )
    return None
