"""What becomes of errors: one sentence on standard error and an exit code that means something.

The codes are a promise (docs/cli.md): scripts branch on them.
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
    """The command line or a value in it is wrong; it stays wrong."""
    NOT_FOUND = 3
    """No such stream, partition, file or data directory."""
    UNAVAILABLE = 4
    """The broker cannot be reached or cannot do it now: try later."""
    CONFLICT = 5
    """It is there already with other settings, or changed meanwhile."""
    OUT_OF_RANGE = 6
    """An offset that the log does not hold (any more, or yet)."""
    ENVIRONMENT = 7
    """This machine lacks something: a free port, a writable folder, a package."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of our output left."""


_CODES: tuple[tuple[type[errors.TidelogError], Exit], ...] = (
    (errors.StreamNotFound, Exit.NOT_FOUND),
    (errors.PartitionNotFound, Exit.NOT_FOUND),
    (errors.StreamExists, Exit.CONFLICT),
    (errors.VersionConflict, Exit.CONFLICT),
    (errors.UnexpectedOffset, Exit.CONFLICT),
    (errors.OffsetOutOfRange, Exit.OUT_OF_RANGE),
    (errors.LogTruncated, Exit.OUT_OF_RANGE),
    (errors.InvalidRequest, Exit.USAGE),
)
"""The first that fits; what is retriable otherwise is unavailable, the rest failed."""


class CommandError(Exception):
    """A command cannot go on: the sentence to print and the code to exit with."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


def fail(message: str, code: Exit = Exit.FAILED) -> NoReturn:
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
