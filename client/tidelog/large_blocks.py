"""Makes the C library keep memory blocks of the size of batches, instead of returning them to the system.

A block that comes from the system costs a page fault for every 4 KiB, so a program that handles one batch
after the other spends more on new pages than on copying the batches. This is for programs of their own, not
for the program of a user: it holds for the whole process.
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BLOCK_BYTES_MAX: Final = 32 << 20
"""Larger blocks are returned to the system when they are freed."""

KEPT_HEAP_BYTES_MAX: Final = 256 << 20
"""More free memory than this at the end of the heap is returned to the system."""

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_large_blocks(heap_bytes_max: int = KEPT_HEAP_BYTES_MAX) -> None:
    """Tells glibc; other C libraries have no such options."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES_MAX)
    mallopt(_M_TRIM_THRESHOLD, heap_bytes_max)
