"""Builds or fetches what peers need, once. A build is kept below .build and named after its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.harness.processes import CACHE

BUILD_SECONDS_MAX = 600.0


def digest(sources: Sequence[Path]) -> str:
    """Names a build after the names and contents of its sources."""
    found = hashlib.sha256()
    for source in sorted(sources):
        found.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def built(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The folder that `build` filled; `build` runs at most once for the same sources."""
    folder = CACHE / f"{name}-{digest(sources)}"
    if folder.exists():
        return folder
    print(f"bench: building {name} (once) …", file=sys.stderr)
    half = CACHE / f"{name}-{os.getpid()}.half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        build(half)
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder
