"""The layers of Tidelog, each alone: the record format and the storage engine.

They run in this process, in one thread, and show which layer takes the time. gRPC alone is `plain_grpc`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from time import perf_counter, time

from bench.harness.model import OURS, Contender, Sample
from bench.harness.stage import Stage
from bench.harness.work import within_disk
from bench.ours.client import arrow_batches, records_per_batch
from tidelog.records import (
    BatchLimits,
    decode_batch,
    encode_batch,
    to_columns,
    validate_batch,
)
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import AppendItem, LogConfig

SIZE = 100
LIMITS = BatchLimits()
LEADER_EPOCH = 1
READ_BYTES = 1 << 20
STREAM_MESSAGE_BYTES = 1 << 20
STREAM_MESSAGES_AHEAD = 8
ECHO_BYTES = 600
"""About a batch of one record."""

WARM_CALLS = 300
MESSAGE_BYTES_MAX = 64 << 20


def _now_us() -> int:
    return int(time() * 1e6)


def _batches() -> list[bytes]:
    return [encode_batch(to_columns(batch, now_us=_now_us())) for batch in arrow_batches(SIZE)]


def _repeat(work: Callable[[], object], seconds: float) -> Sample:
    """Records per second of work on whole batches."""
    rows, done, began = records_per_batch(SIZE), 0, perf_counter()
    until = began + seconds
    while perf_counter() < until:
        work()
        done += 1
    took = perf_counter() - began
    return Sample(done * rows / took, {"us_per_batch": took / done * 1e6})


# --- the record format


def encode(seconds: float) -> Sample:
    """Arrow columns → batch bytes with their CRC."""
    columns = cycle([to_columns(batch, now_us=_now_us()) for batch in arrow_batches(SIZE)])
    return _repeat(lambda: encode_batch(next(columns)), seconds)


def decode(seconds: float) -> Sample:
    """Batch bytes → Arrow columns, without a copy; CRCs are verified elsewhere."""
    batches = cycle(_batches())
    return _repeat(lambda: decode_batch(next(batches)), seconds)


def validate(seconds: float) -> Sample:
    """All checks of a leader (F1)."""
    batches = cycle(_batches())
    return _repeat(lambda: validate_batch(next(batches), LIMITS, now_us=_now_us()), seconds)


# --- storage


@contextmanager
def _log(folder: Path) -> Iterator[PartitionLog]:
    with tempfile.TemporaryDirectory(prefix="layer-", dir=folder) as root:
        store = LogStore(OsFiles(), root, tail_cache_bytes_max=0)
        log = store.opener.create(Wanted("layer", bytes(16), 0, LogConfig()))
        try:
            yield log
        finally:
            log.close()


def _items() -> list[AppendItem]:
    return [AppendItem(batch, validate_batch(batch, LIMITS, now_us=_now_us())) for batch in _batches()]


def append(folder: Path, seconds: float, *, fsync: bool) -> Sample:
    """Validated batches into a log, one at a time, each made durable or not."""
    items = cycle(_items())
    left = within_disk(SIZE)
    with _log(folder) as log:

        def one() -> None:
            log.writer.append([next(items)], leader_epoch=LEADER_EPOCH, now_us=_now_us())
            if fsync:
                log.flusher.sync()

        rows = records_per_batch(SIZE)
        done, began = 0, perf_counter()
        while done * rows < left and perf_counter() - began < seconds:
            one()
            done += 1
        took = perf_counter() - began
    return Sample(done * rows / took, {"us_per_batch": took / done * 1e6})


def read(folder: Path, seconds: float) -> Sample:
    """Batches out of a log by offset, both CRCs verified, from the page cache."""
    items = cycle(_items())
    with _log(folder) as log:
        for _ in range(200):
            log.writer.append([next(items)], leader_epoch=LEADER_EPOCH, now_us=_now_us())
        end, records, began = log.end_offset, 0, perf_counter()
        until = began + seconds
        while perf_counter() < until:
            offset, place = 0, None
            while offset < end:
                chunk = log.reader.read(offset, READ_BYTES, end, place)
                assert chunk is not None
                offset, place = chunk.next_offset, chunk.place
            records += end
        took = perf_counter() - began
    return Sample(records / took)


def alone(measure: Callable[[float], Sample], **settings: object) -> Callable[[Stage], Contender]:
    """A layer as a case of its own."""
    return lambda _stage: Contender(OURS, measure, settings)
