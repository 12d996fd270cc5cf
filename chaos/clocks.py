"""Clocks that are wrong: libfaketime, loaded before a process, has it read another time than its machine's.

Time that passes (CLOCK_MONOTONIC, CLOCK_BOOTTIME) stays what it is, as with a clock that somebody sets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PLACES: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
NAME: Final = "libfaketimeMT.so.1"

MISSING: Final = "libfaketime is not installed here (on Debian or Ubuntu: apt install libfaketime)"


def find_faketime() -> Path | None:
    """libfaketime for processes with threads; None: it is not installed."""
    for place in PLACES:
        found = sorted(Path(place).glob(f"**/faketime/{NAME}"))
        if found:
            return found[0]
    return None


def faked_clock(library: Path, offset: Path) -> dict[str, str]:
    """The environment of a process whose clock is off by the seconds that a file names, empty: by none.

    The file is read again after a second at most.
    """
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
