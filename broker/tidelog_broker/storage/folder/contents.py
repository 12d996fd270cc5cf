"""The contents of a partition's folder, as they are read before recovery trusts them.

Neighbours: `recovery` makes a log from them, `identity` says which partition the folder belongs to.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.folder.damage_list import FILE_NAME as DAMAGE_FILE
from tidelog_broker.storage.folder.damage_list import load_damage
from tidelog_broker.storage.folder.identity import read_held
from tidelog_broker.storage.folder.page_cache_mark import FILE_NAME as PAGE_CACHE_FILE
from tidelog_broker.storage.folder.suspicion import FILE_NAME as SUSPECT_FILE
from tidelog_broker.storage.points import PartitionKey
from tidelog_broker.storage.segments.index_files import INDEX_SUFFIXES
from tidelog_broker.storage.segments.scan import DamagedRange
from tidelog_broker.storage.segments.segment import Segment, segment_base


class IdentityLost(Exception):
    """The identity file is missing or damaged, so the owner of the folder is unknown."""


class Stray(Exception):
    """The folder belongs to another partition: it is kept and reported (2d)."""


@dataclass(slots=True)
class Contents:
    """A folder's files, described by their names and sizes and by the list of damage."""

    segments: list[Segment]
    """Oldest first. Sizes come from the file system. A segment ends at the base of the next segment, so the
    end of the last segment is not known."""
    suspect: bool
    damaged: list[DamagedRange] = field(default_factory=list)
    """Damaged ranges that earlier runs found."""
    page_cache: bool = False
    """The log may hold records that counted without a flush (R17)."""


def check_identity(files: OpenFiles, folder: str, key: PartitionKey, assignment: int) -> None:
    """Checks that the folder belongs to this partition and assignment; raises `IdentityLost` and `Stray`."""
    found = read_held(files.files, folder)
    if found is None:
        raise IdentityLost("the identity file is missing or damaged")
    if found.key != key:
        raise Stray(f"the identity file says stream {found.key[0].hex()} partition {found.key[1]}")
    if found.assignment != assignment:
        raise Stray(
            f"the identity file says assignment {found.assignment} of the replica, and the metadata "
            f"{assignment}; were the metadata recovered by force?"
        )


def read_contents(files: OpenFiles, folder: str, key: PartitionKey, log_start_offset: int) -> Contents:
    """Reads the folder's files, and removes the leftovers of an interrupted removal or replacement."""
    names = files.files.list(folder)
    bases = sorted(base for base in map(segment_base, names) if base is not None)
    first = max((base for base in bases if base <= log_start_offset), default=0)
    kept = [base for base in bases if base >= first]
    _remove_leftovers(files.files, folder, names, set(kept))
    segments = [Segment(files, folder, base, key) for base in kept]
    for number, segment in enumerate(segments):
        segment.size = files.files.file_size(segment.path)
        if number + 1 < len(segments):
            segment.next_offset, segment.closed = kept[number + 1], True
    damaged = load_damage(files.files, folder) if DAMAGE_FILE in names else []
    return Contents(segments, SUSPECT_FILE in names, damaged, PAGE_CACHE_FILE in names)


def _remove_leftovers(files: Files, folder: str, names: list[str], kept: set[int]) -> None:
    """Removes segments wholly below the LSO (a crash interrupted their removal), indexes without a segment,
    and temporary files that never replaced their targets."""
    for name in names:
        base = segment_base(name, (".log", *INDEX_SUFFIXES))
        if name.endswith(".tmp") or (base is not None and base not in kept):
            with contextlib.suppress(OSError):
                files.remove(f"{folder}/{name}")
