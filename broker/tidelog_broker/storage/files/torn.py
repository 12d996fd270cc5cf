"""Whether a write that a loss of power cut short can have left bytes that fail their checks (DESIGN 4, 2b).

A file that only grows has room that was never written before, and a file system shows what did
not come to such room as zeros. A disk takes a sector as a whole or not at all. So a torn write
lacks at least one sector, or the file ends inside it. Bytes that lack none were all on the disk
once, perhaps flushed and acknowledged, and changed there.

The reverse does not hold: zeros may have been written, and a disk may forget what it called
flushed. What lacks a sector passes for torn. Neighbours: `recovery` and `raft.recovery` ask;
`leader_epochs` has the same rule for its last entry.
"""

from __future__ import annotations

SECTOR_BYTES = 512
"""The least that a disk takes as a whole; those with larger sectors lack several at once."""


def lacks_a_sector(data: bytes, position: int) -> bool:
    """Whether a sector, or what `data` has of one, is all zeros; `data` begins at `position` of its file."""
    start = 0
    while start < len(data):
        end = start + SECTOR_BYTES - (position + start) % SECTOR_BYTES
        if not data[start:end].strip(b"\0"):
            return True
        start = end
    return not data
