"""Every byte of a small data directory, turned over: recovered, healed or refused, never wrong (2c).

`TIDELOG_FLIP_BITS` sets how many bits of each byte are tried (default 1, at most 8).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass

import pytest

from simulator.disk import FakeDisk
from storage.batches import STREAM_ID, T0, headers_of, item, read_all, records
from tidelog.errors import DataCorrupt, OffsetOutOfRange
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import Appended, LogConfig

BITS = int(os.environ.get("TIDELOG_FLIP_BITS", "1"))
ROOT = "/data"
WANTED = Wanted("orders", STREAM_ID, 0, LogConfig(segment_bytes=1200))
KEY = (STREAM_ID, 0)
START = 1
"""The LSO of the small log."""


@dataclass(frozen=True, slots=True)
class Small:
    """A small data directory and what it holds."""

    disk: FakeDisk
    batches: tuple[tuple[int, int, bytes], ...]
    """Base offset, next offset, bytes."""
    durable: int
    """Everything below lies under the saved recovery point."""

    @property
    def end(self) -> int:
        return self.batches[-1][1]


def small_log(*, clean: bool) -> Small:
    disk = FakeDisk()
    disk.make_dir(ROOT)
    disk.sync_dir("/")
    store = LogStore(disk, ROOT)
    log = store.opener.create(WANTED)
    times = iter(range(T0, T0 + 1000, 10))

    def append(count: int, **fields: object) -> None:
        stamps = [next(times) for _ in range(count)]
        one = item(records(count, first=log.end_offset), timestamps=stamps, **fields)  # type: ignore[arg-type]
        outcome = log.writer.append([one], leader_epoch=epoch, now_us=stamps[-1])[0]
        assert isinstance(outcome, Appended)

    epoch = 1
    append(2)
    append(2, producer_id=5)
    append(1, ids=["a"])
    epoch = 2
    append(2, producer_id=5, sequence=2)
    store.sync([log])
    log.start.advance(START)
    store.saved.save([(log, log.end_offset)])
    durable = log.durable_offset
    epoch = 3
    append(1)
    append(1, ids=["b"])
    if clean:
        store.close_clean([(log, log.end_offset)])
        durable = log.end_offset
    else:
        store.sync([log])
    data, at, batches = read_all(log), 0, []
    for header in headers_of(data):
        batches.append((header.base_offset, header.next_offset, data[at : at + header.length]))
        at += header.length
    return Small(disk.crash() if not clean else disk, tuple(batches), durable)


def served(log: PartitionLog, small: Small) -> list[bool]:
    """Which of the batches can be read; each either as it was or not at all."""
    found = []
    for base, _, raw in small.batches:
        try:
            chunk = log.reader.read(max(base, log.start_offset), 1, log.end_offset)
        except (DataCorrupt, OffsetOutOfRange):
            chunk = None
        if chunk is not None:
            assert b"".join(bytes(part) for part in chunk.parts) == raw
        found.append(chunk is not None)
    return found


def check_bytes(log: PartitionLog, small: Small, readable: list[bool]) -> None:
    """Counting bytes comes to the edge of a batch ahead, and is refused only where nothing can be read."""
    edges = {base for base, _, _ in small.batches} | {log.end_offset}
    for number, (base, _, raw) in enumerate(small.batches):
        offset = max(base, log.start_offset)
        if offset >= log.end_offset:
            continue
        for size in (1, len(raw), 3 * len(raw), 1 << 20):
            try:
                reached = log.reader.after_bytes(offset, size, log.end_offset)
            except DataCorrupt:
                assert not readable[number]
                continue
            assert offset < reached <= log.end_offset
            assert reached in edges
            if all(readable) and size <= len(raw) < 1 << 20 and base >= log.start_offset:
                assert reached == min(edge for edge in edges if edge > offset)


def start_with(small: Small, path: str, position: int, bit: int, *, same_boot: bool) -> str:
    """Flips one bit, starts, reads everything, appends; what became of it."""
    disk = small.disk.copy()
    disk.flip(path, position, bit)
    store = LogStore(disk, ROOT)
    opened = store.opener.open_all([WANTED], same_boot=same_boot)
    if opened.lost:
        assert KEY not in opened.logs
        assert any(".quarantine-0" in name for name in disk.tree())
        return "quarantined"
    log = opened.logs[KEY]
    readable = served(log, small)
    for number, (base, _, _) in enumerate(small.batches):
        at = log.reader.find_time(T0 + 10 * base, log.end_offset)
        if all(readable):
            assert at == max(base, log.start_offset)
        elif at is not None and readable[number] and base >= log.start_offset:
            assert at == base
    check_bytes(log, small, readable)
    assert log.guard.offset == log.end_offset
    end = log.end_offset
    outcome = log.writer.append([item([b"more"])], leader_epoch=9, now_us=T0)[0]
    assert isinstance(outcome, Appended)
    assert outcome.base_offset == end
    if all(readable):
        assert end == small.end
        return "unharmed"
    if end < small.end:
        assert end >= small.durable, "nothing below the recovery point is ever cut"
        return "cut, suspect" if log.suspect else "cut"
    assert readable.count(False) == 1, "one flipped bit makes one batch unreadable, the rest serves"
    return "refused in part"


def every_flip(small: Small, *, same_boot: bool) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for path, content in small.disk.tree().items():
        kind = path.rpartition("/")[2]
        kind = kind.rpartition(".")[2] if kind[0].isdigit() else kind
        for position in range(len(content)):
            for number in range(BITS):
                bit = (position * 3 + number) % 8
                try:
                    what = start_with(small, path, position, bit, same_boot=same_boot)
                except Exception as error:
                    error.add_note(f"bit {bit} of byte {position} of {path}")
                    raise
                found[kind, what] += 1
    return found


@pytest.mark.long
def test_a_flipped_bit_after_a_clean_stop_is_refused_or_harmless() -> None:
    found = every_flip(small_log(clean=True), same_boot=True)

    print(sum(found.values()), "flips", dict(found))  # noqa: T201
    outcomes = {kind: {what for name, what in found if name == kind} for kind, _ in found}
    assert outcomes == {
        "log": {"refused in part"},
        "index": {"unharmed"},
        "timeindex": {"unharmed"},
        "guard": {"unharmed"},
        "leader-epochs": {"quarantined"},
        "identity": {"quarantined"},
        "clean-stop": {"unharmed"},
        "high-watermarks": {"unharmed"},
        "log-start-offsets": {"unharmed"},
        "log-start-offsets.copy": {"unharmed"},
        "recovery-points": {"unharmed"},
    }


@pytest.mark.long
@pytest.mark.parametrize("same_boot", [True, False], ids=["the same boot", "another boot"])
def test_a_flipped_bit_after_a_crash_is_cut_only_past_the_recovery_point(same_boot: bool) -> None:
    found = every_flip(small_log(clean=False), same_boot=same_boot)

    print(sum(found.values()), "flips", dict(found))  # noqa: T201
    outcomes = {kind: {what for name, what in found if name == kind} for kind, _ in found}
    # Nothing is missing, as after a torn write: what rotted may have been acknowledged.
    past_recovery_point = {"quarantined"} if same_boot else {"cut, suspect"}
    assert outcomes["log"] == {"refused in part"} | past_recovery_point
    assert outcomes["identity"] == outcomes["leader-epochs"] == {"quarantined"}
    for kind in (
        "guard",
        "high-watermarks",
        "log-start-offsets",
        "log-start-offsets.copy",
        "recovery-points",
    ):
        assert outcomes[kind] <= {"unharmed"}
