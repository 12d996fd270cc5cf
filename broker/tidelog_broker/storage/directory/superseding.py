"""Replaces a metadata log by an empty log, after a forced recovery gave up its history (M2).

A mark in the data directory is the switch: it names the folder to which the old log is moved. While the mark
is there, every start continues where the last start stopped. The old log is kept as
``raft.superseded-<n>``; nothing reads or deletes it. Logs of partitions stay where they are. Blocking.

File `metadata-superseded`: the name of that folder, as a line of text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.storage.directory.data_directory import raft_folder
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file, replace_file

FILE_NAME: Final = "metadata-superseded"

ASIDE_PREFIX: Final = "raft.superseded-"

_NEW: Final = "raft.new"
"""The folder of the empty log, until the log is moved to its place."""

_ASIDE_NAME: Final = re.compile(rf"{re.escape(ASIDE_PREFIX)}\d+")


def mark(files: Files, path: str) -> None:
    """Writes the mark: the next start sets aside the metadata log below `path`. Durable; raises OSError."""
    if not is_marked(files, path):
        replace_file(files, f"{path}/{FILE_NAME}", f"{_free_name(files, path)}\n".encode())


def is_marked(files: Files, path: str) -> bool:
    return files.exists(f"{path}/{FILE_NAME}")


def is_between(files: Files, path: str) -> bool:
    """Whether the old log is already moved away and the empty log is not in its place yet.

    A start of the broker completes the move.
    """
    return is_marked(files, path) and not files.exists(raft_folder(path))


def require_log(files: Files, path: str) -> None:
    """Raises `DataDirectoryError` if there is no metadata log to read until the next start."""
    if is_between(files, path):
        raise DataDirectoryError(
            f"the metadata log of {path} was being set aside when its broker ended: start the broker, which "
            "completes that"
        )


def set_aside(files: Files, path: str, make_log: Callable[[str], None]) -> str:
    """Carries out the mark and removes it; returns the folder of the old log. Raises OSError.

    `make_log` writes an empty log into the folder that it receives.
    """
    name = read_file(files, f"{path}/{FILE_NAME}").decode("ascii", "replace").strip()
    if not _ASIDE_NAME.fullmatch(name):
        name = _free_name(files, path)
    aside, new = f"{path}/{name}", f"{path}/{_NEW}"
    if not files.exists(aside):
        # The new log is made before anything moves, because the disk may be full.
        if files.exists(new):
            files.remove_tree(new)
        make_log(new)
        files.sync_dir(path)
        files.rename(raft_folder(path), aside)
        files.sync_dir(path)
    if is_between(files, path):
        files.rename(new, raft_folder(path))
        files.sync_dir(path)
    files.remove(f"{path}/{FILE_NAME}")
    files.sync_dir(path)
    return aside


def newest_aside(files: Files, path: str) -> str:
    """The folder of the log that was set aside last; empty: no log was set aside."""
    numbers = [
        int(name.removeprefix(ASIDE_PREFIX)) for name in files.list(path) if _ASIDE_NAME.fullmatch(name)
    ]
    return f"{path}/{ASIDE_PREFIX}{max(numbers)}" if numbers else ""


def _free_name(files: Files, path: str) -> str:
    number = 1
    while files.exists(f"{path}/{ASIDE_PREFIX}{number}"):
        number += 1
    return f"{ASIDE_PREFIX}{number}"
