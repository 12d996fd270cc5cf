"""Wrong clocks: with libfaketime preloaded, a process reads another time than that of its machine.

The clocks of elapsed time (CLOCK_MONOTONIC, CLOCK_BOOTTIME) stay right, as when the wall clock is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PLACES: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
NAME: Final = "libfaketimeMT.so.1"

MISSING: Final = "libfaketime is not installed. On Debian or Ubuntu: apt install libfaketime"


def find_faketime() -> Path | None:
    """The library file of libfaketime for processes with threads; None: it is not installed."""
    for place in PLACES:
        found = sorted(Path(place).glob(f"**/faketime/{NAME}"))
        if found:
            return found[0]
    return None


def faked_clock(library: Path, offset: Path) -> dict[str, str]:
    """The environment of a process whose clock is wrong by the seconds in the file `offset`; empty: 0 s.

    libfaketime reads the file again after at most one second.
    """
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
