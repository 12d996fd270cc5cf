"""A disk that tears writes, forgets what was not synced, fills, fails and rots: `FakeDisk`.

`names` are its folders, `content` what files hold, `files` those that are open, `operations` what is counted.
"""

from __future__ import annotations

from simulator.disk.content import PAGE_BYTES
from simulator.disk.disk import FakeDisk
from simulator.disk.files import Bytes, FakeFile
from simulator.disk.operations import CrashPoint, Fault, Operation

__all__ = ["PAGE_BYTES", "Bytes", "CrashPoint", "FakeDisk", "FakeFile", "Fault", "Operation"]
