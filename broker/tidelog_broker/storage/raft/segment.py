"""Locates the entries of the metadata log: the names of its files, and the entries' places in a file.

Neighbours: `log` (the open log), `recovery` (opens the log), `format` (the bytes).
"""

from __future__ import annotations

import re
from array import array

from tidelog_broker.model import Entry

SEGMENT_NAME = re.compile(r"(\d{20})\.log")
SNAPSHOT_NAME = re.compile(r"snapshot-(\d{20})-(\d{20})")
INSTALL_NAME = re.compile(r"install-(\d{20})-(\d{20})")


class RaftSegment:
    """The places of the entries in one file."""

    __slots__ = ("base", "path", "positions", "size", "terms")

    def __init__(self, folder: str, base: int) -> None:
        self.base = base
        """Index of its first entry, also while the file is empty."""
        self.path = segment_path(folder, base)
        self.size = 0
        self.positions = array("Q")
        self.terms = array("Q")

    @property
    def next_index(self) -> int:
        return self.base + len(self.positions)

    def add(self, entry: Entry, position: int, end: int) -> None:
        self.positions.append(position)
        self.terms.append(entry.term)
        self.size = end

    def cut(self, index: int) -> None:
        """Forgets the entries from `index` on."""
        count = index - self.base
        self.size = self.positions[count] if count < len(self.positions) else self.size
        del self.positions[count:]
        del self.terms[count:]

    def position(self, index: int) -> int:
        count = index - self.base
        return self.positions[count] if count < len(self.positions) else self.size


def segment_path(folder: str, base: int) -> str:
    return f"{folder}/{base:020d}.log"


def snapshot_path(folder: str, index: int, term: int) -> str:
    return f"{folder}/snapshot-{index:020d}-{term:020d}"


def install_path(folder: str, index: int, term: int) -> str:
    """The path of a snapshot that is replacing the log."""
    return f"{folder}/install-{index:020d}-{term:020d}"
