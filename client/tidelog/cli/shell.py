"""What a shell hands a program besides its words: bytes that are no text, closed files, signals.

All of it is put in order here, once, so that commands can rely on it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from tidelog.cli.app import run
from tidelog.cli.errors import Exit

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run_process(arguments: Sequence[str]) -> int:
    """Runs one command line as this process's own; its exit code."""
    refusal = _open_files() or _check_text(arguments)
    if refusal is not None:
        sys.stderr.write(f"tidelog: {refusal}\n")
        return Exit.USAGE
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        # As Ctrl-C does it: files are closed well, and what waits is told.
        stopped.append(number)
        signal.raise_signal(signal.SIGINT)

    for number in STOP_SIGNALS:
        # One that is ignored (nohup) stays so.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)
    code = run(arguments)
    return 128 + stopped[0] if stopped and code in (Exit.OK, Exit.INTERRUPTED) else code


def _open_files() -> str | None:
    """Opens what is closed, so that no file of ours takes its place; why that is not enough, if it is not."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        return "standard output is closed; send it to /dev/null if it is not wanted"
    return None


def _check_text(arguments: Sequence[str]) -> str | None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            return (
                f"the argument {os.fsencode(argument)!r} is not UTF-8; "
                "give such bytes on standard input or with --file"
            )
    return None
