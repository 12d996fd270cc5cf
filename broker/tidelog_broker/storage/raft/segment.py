"""Where the entries of the metadata log lie: its files by name, and the places in one of them.

Neighbours: `log` (an open log), `recovery` (finds what is there), `format` (bytes).
"""

from __future__ import annotations

import re
from array import array

from tidelog_broker.model import Entry

SEGMENT_NAME = re.compile(r"(\d{20})\.log")
SNAPSHOT_NAME = re.compile(r"snapshot-(\d{20})-(\d{20})")
INSTALL_NAME = re.compile(r"install-(\d{20})-(\d{20})")


class RaftSegment:
    """Where the entries of one file lie."""

    __slots__ = ("base", "path", "positions", "size", "terms")

    def __init__(self, folder: str, base: int) -> None:
        self.base = base
        """Index of its first entry, there or not."""
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
    """Of a snapshot that is taking the place of the log."""
    return f"{folder}/install-{index:020d}-{term:020d}"
