"""Tells a torn write from rot: could a power loss during a write leave these bytes (DESIGN 4, 2b)?

A file that only grows gets space that was never written before. The file system shows the parts of such
space that the write did not reach as zeros. A disk writes a sector as a whole or not at all. So a torn
write lacks at least one sector, or the file ends inside it. If no sector is missing, all bytes were on
disk once, perhaps flushed and acknowledged, and changed there later: that is rot.

The reverse does not hold: a missing sector may be zeros that were written on purpose, and a disk may
lose a sector that it reported as flushed. Bytes that lack a sector are treated as torn.
Neighbours: `recovery` and `raft.recovery` call it; `leader_epochs` has the same rule for its last entry.
"""

from __future__ import annotations

SECTOR_BYTES = 512
"""The smallest unit that a disk writes as a whole; a larger sector counts as several units."""


def lacks_a_sector(data: bytes, position: int) -> bool:
    """Whether a sector, or its part in `data`, is all zeros; `data` starts at `position` of its file."""
    start = 0
    while start < len(data):
        end = start + SECTOR_BYTES - (position + start) % SECTOR_BYTES
        if not data[start:end].strip(b"\0"):
            return True
        start = end
    return not data
