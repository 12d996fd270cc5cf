"""Cold files: dropped from the page cache, and read at a steady rate by a plain program.

``python -m bench.catchup.cold FILE… --skip-bytes … --bytes-per-second … --cpus … --seconds …`` is the
program. It is `read` and a busy loop, without code of Tidelog. `bench.catchup` compares our catch-up
readers with it: the same bytes from the same disk, for the same CPU time.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time, sleep

from bench.measuring.pace import seconds_until_due

CHUNK_BYTES = 1 << 20
"""Bytes of one read, as in our broker."""

READING = "reading"
"""The line that a reader prints when it has its first bytes."""


def evict(paths: Iterable[Path]) -> None:
    """Drops files from the page cache. They are synced first: pages that are not on disk would stay."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def chunks(paths: Sequence[Path], skip_bytes: int, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of the files one after the other, without the first `skip_bytes` of all files together."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            here = min(skip_bytes, os.fstat(file.fileno()).st_size)
            skip_bytes -= here
            file.seek(here)
            while chunk := file.read(size):
                yield chunk


def read(
    paths: Sequence[Path], *, skip_bytes: int, bytes_per_second: float, cpus: float, seconds: float
) -> int:
    """Reads at a rate for some seconds and uses `cpus` CPU seconds a second; how many bytes it has read.

    After each chunk it runs a busy loop until the CPU time that is due is used; the reading's own counts.
    """
    began, burnt, done = perf_counter(), process_time(), 0
    for chunk in chunks(paths, skip_bytes):
        if not done:
            print(READING, flush=True)
        done += len(chunk)
        burn_until = burnt + cpus * done / bytes_per_second
        while process_time() < burn_until:
            pass
        passed = perf_counter() - began
        if passed >= seconds:
            break
        sleep(seconds_until_due(done, bytes_per_second, passed))
    return done


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.catchup.cold",
        description="Reads files at a steady rate and uses a given CPU time.",
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--skip-bytes", type=int, default=0, help="bytes to skip at the beginning of all files together"
    )
    parser.add_argument("--bytes-per-second", type=float, required=True)
    parser.add_argument("--cpus", type=float, default=0.0, help="CPU seconds to use per second")
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args(arguments)
    read(
        options.files,
        skip_bytes=options.skip_bytes,
        bytes_per_second=options.bytes_per_second,
        cpus=options.cpus,
        seconds=options.seconds,
    )


if __name__ == "__main__":
    main()
