"""The operations that change a simulated disk, and their failures.

Neighbours: `disk` counts them, `files` performs those of open files.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import NamedTuple

OPERATIONS = (
    "create", "pwrite", "truncate", "datasync", "make_dir", "rename", "remove", "sync_dir", "syncfs",
)  # fmt: skip


class CrashPoint(BaseException):
    """The process ended here. A BaseException, so that no `except Exception` catches it."""


class Operation(NamedTuple):
    """A change of the disk that is about to happen."""

    number: int
    """From 0."""
    name: str
    """One of `OPERATIONS`."""
    path: str
    position: int = 0
    length: int = 0


@dataclass(slots=True)
class Fault:
    """An OSError for some of the next operations."""

    operation: str
    """One of `OPERATIONS`, or `pread`."""
    errno: int = errno.EIO
    path: str = ""
    """Only paths that contain this text."""
    skip: int = 0
    """How many matching operations succeed first."""
    times: int = 1
    """How many fail then."""


def os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
