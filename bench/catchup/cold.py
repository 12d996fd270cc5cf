"""Cold files: thrown out of the page cache, and read at a steady rate by a plain program.

``python -m bench.catchup.cold FILE… --skip-bytes … --bytes-per-second … --cpus … --seconds …`` is
the program: `read` and a busy loop, nothing of ours. It is what `bench.catchup` compares
our catch-up readers with: the same bytes from the same disk for the same CPU time.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter, process_time, sleep

from bench.measuring.pace import seconds_until_due

CHUNK_BYTES = 1 << 20
"""Of one read, as in our broker."""

READING = "reading"
"""What a reader prints when its first bytes have come."""


def evict(paths: Iterable[Path]) -> None:
    """Drops files from the page cache. What is not on disk yet goes there first, or it would stay."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def chunks(paths: Sequence[Path], skip_bytes: int, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of files one after the other, without the first `skip_bytes` of them all."""
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
    """Reads for some seconds at a rate, burns `cpus` CPU seconds a second meanwhile; bytes that were read.

    After each chunk it burns what is due by then, the CPU time of the reading included.
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
    parser = argparse.ArgumentParser(prog="python -m bench.catchup.cold", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--skip-bytes", type=int, default=0, help="of all files together")
    parser.add_argument("--bytes-per-second", type=float, required=True)
    parser.add_argument("--cpus", type=float, default=0.0, help="CPU seconds to burn per second")
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
