"""What changes a simulated disk, one operation at a time, and how an operation may fail.

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
    """The process ended here: no `except Exception` may stop it."""


class Operation(NamedTuple):
    """Something that changes the disk, about to happen."""

    number: int
    """From 0."""
    name: str
    """One of `OPERATIONS`."""
    path: str
    position: int = 0
    length: int = 0


@dataclass(slots=True)
class Fault:
    """An OSError for some of the operations to come."""

    operation: str
    """One of `OPERATIONS`, or `pread`."""
    errno: int = errno.EIO
    path: str = ""
    """Only paths that hold this text."""
    skip: int = 0
    """So many matching operations pass first."""
    times: int = 1
    """Then so many fail."""


def os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
