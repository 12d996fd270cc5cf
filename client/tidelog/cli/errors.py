"""Errors of commands: one sentence on standard error, and an exit code.

Scripts branch on the codes, so they do not change (docs/cli.md).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

from tidelog import errors


class Exit(IntEnum):
    """Exit codes."""

    OK = 0
    FAILED = 1
    """The work failed, or a check found problems."""
    USAGE = 2
    """The command line or a value in it is wrong. Repeating the command does not help."""
    NOT_FOUND = 3
    """No such stream, partition, broker, file or data directory."""
    UNAVAILABLE = 4
    """No broker answers, or the cluster cannot do it now: try later."""
    CONFLICT = 5
    """It exists already with other settings, or it has changed meanwhile."""
    OUT_OF_RANGE = 6
    """The log no longer has the offset, or does not have it yet."""
    ENVIRONMENT = 7
    """This machine lacks something: a free port, a folder that is writable and not in use, a package."""
    DENIED = 8
    """The credentials are missing or not valid, or the principal may not do it."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""
    BROKEN_PIPE = 141
    """The program that read the output has ended."""


_CODES: tuple[tuple[type[errors.TidelogError], Exit], ...] = (
    (errors.StreamNotFound, Exit.NOT_FOUND),
    (errors.PartitionNotFound, Exit.NOT_FOUND),
    (errors.StreamExists, Exit.CONFLICT),
    (errors.VersionConflict, Exit.CONFLICT),
    (errors.UnexpectedOffset, Exit.CONFLICT),
    (errors.OffsetOutOfRange, Exit.OUT_OF_RANGE),
    (errors.LogTruncated, Exit.OUT_OF_RANGE),
    (errors.InvalidRequest, Exit.USAGE),
    (errors.Unauthenticated, Exit.DENIED),
    (errors.PermissionDenied, Exit.DENIED),
)
"""The first class that fits counts. Other errors are `UNAVAILABLE` if they are retriable, else `FAILED`."""


class CommandError(Exception):
    """A command cannot go on: the sentence to print and the code to exit with."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


def fail(message: str, code: Exit = Exit.FAILED) -> NoReturn:
    """Ends the command with a sentence and a code."""
    raise CommandError(message, code)


def exit_code(error: errors.TidelogError) -> Exit:
    """The code for an error of the library."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.UNAVAILABLE if error.retriable else Exit.FAILED


def sentence(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split()) or "no reason was given"
