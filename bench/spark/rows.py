"""The rows that Spark reads and writes, the same for each contender. No I/O."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa

from bench.ours.client import records_per_batch

SUBJECTS = 100
"""Different subjects of the rows with subjects; each has the same number of rows, give or take one."""

SUBJECT = "bench.42"
"""The subject that a selective read asks for."""

BATCHES = 4
"""Different batches of values, used in turn."""

SEED = 21


def batches(size: int, count: int, *, subjects: bool) -> Iterator[pa.RecordBatch]:
    """`count` rows with random values of `size` bytes; with `subjects`, the key is the subject as bytes."""
    rng, rows = random.Random(SEED), records_per_batch(size)
    values = [pa.array([rng.randbytes(size) for _ in range(rows)], pa.binary()) for _ in range(BATCHES)]
    at = 0
    while at < count:
        some = min(rows, count - at)
        columns = {"value": values[at // rows % BATCHES].slice(0, some)}
        if subjects:
            names = pa.array([f"bench.{number % SUBJECTS}" for number in range(at, at + some)])
            columns = {"key": names.cast(pa.binary()), **columns, "subject": names}
        yield pa.record_batch(columns)
        at += some


def selected(count: int) -> int:
    """How many of `count` rows with subjects have `SUBJECT`."""
    number = int(SUBJECT.partition(".")[2])
    return (count - number + SUBJECTS - 1) // SUBJECTS
