"""A simulated disk that tears writes, loses bytes that were not synced, is full, fails and rots: `FakeDisk`.

- `disk`        the disk, and the rules of its model
- `device`      its room, the count of its operations, and planned failures
- `names`       its folders, and which names survive a crash
- `content`     the content of a file, and which bytes survive a crash
- `files`       open files
- `operations`  the operations that change the disk

Nothing here knows a broker or a run.
"""

from __future__ import annotations

from simulator.disk.content import PAGE_BYTES
from simulator.disk.disk import FakeDisk
from simulator.disk.files import Bytes, FakeFile
from simulator.disk.operations import CrashPoint, Fault, Operation

__all__ = ["PAGE_BYTES", "Bytes", "CrashPoint", "FakeDisk", "FakeFile", "Fault", "Operation"]
