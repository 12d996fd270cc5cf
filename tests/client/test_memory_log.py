"""The log of `tidelog.testing` against the broker's own rules, on random histories: neither may differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from support.api import batch
from tidelog import errors
from tidelog.model import Position
from tidelog.records import NO_PRODUCER_ID, BatchHeader
from tidelog.testing._log import MemoryLog, check_producer_id
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.replication.positions import check_position
from tidelog_broker.hosting.producer_ids import ProducerIds
from tidelog_broker.storage.guard.append_guard import AppendGuard, GuardLimits

STREAM_ID = bytes(16)


def outcome(attempt: Callable[..., object], *args: object) -> object:
    """What `attempt` answers, or the error with its facts."""
    try:
        return attempt(*args)
    except errors.TidelogError as error:
        facts = {name: error.details[name] for name in sorted(error.details) if name != "producer_epoch"}
        return type(error).__name__, facts


def stored(data: bytes, log: MemoryLog) -> BatchHeader:
    log.append(data, leader_epoch=1, now_us=1)
    return log.batches[-1].header


@pytest.mark.parametrize("seed", range(20))
def test_appends_are_taken_repeated_and_refused_as_by_the_broker(seed: int) -> None:
    rng = random.Random(seed)
    log, guard = MemoryLog(STREAM_ID, 0), AppendGuard(GuardLimits())
    following = {1: 0, 2: 0}

    def by_guard(header: BatchHeader, expected: int | None) -> int | None:
        ref = guard.check(header, expected)
        return None if ref is None else ref.base_offset

    def by_log(header: BatchHeader, expected: int | None) -> int | None:
        receipt = log.check(header, expected)
        return None if receipt is None else receipt.offset

    for _ in range(120):
        producer, epoch = rng.choice([1, 1, 2]), rng.choice([0] * 30 + [1])
        sequence = max(0, following[producer] + rng.choice([0, 0, 0, 0, -1, -2, -4, -9, 2]))
        values = [b"v"] * rng.choice([1, 2])
        data = batch(*values, producer_id=producer, sequence=sequence, epoch=epoch)
        header, expected = BatchHeader.unpack(data), rng.choice([None, None, None, log.end, log.end + 1])
        answer = outcome(by_log, header, expected)
        assert answer == outcome(by_guard, header, expected)
        if answer is None:
            guard.record(stored(data, log))
            following[producer] = sequence + header.record_count


@pytest.mark.parametrize("seed", range(20))
def test_positions_are_judged_as_by_the_broker(seed: int) -> None:
    rng = random.Random(seed)
    log = MemoryLog(STREAM_ID, 0)
    starts: list[tuple[int, int]] = []
    epoch = 1
    for _ in range(rng.randrange(12)):
        epoch += rng.choice([0, 0, 1, 3])
        if not starts or starts[-1][0] != epoch:
            starts.append((epoch, log.end))
        log.append(batch(*[b"v"] * rng.choice([1, 5])), leader_epoch=epoch, now_us=1)
    ends = [(one, end) for (one, _), (_, end) in pairwise([*starts, (0, log.end)])]

    def by_broker(position: Position) -> None:
        asked = position.leader_epoch
        known = [] if asked is None else [entry for entry in ends if entry[0] <= asked]
        check_position(
            position.offset,
            asked,
            first=(*starts[0], False) if starts else None,
            end_of_epoch=known[-1] if known else None,
            log_start_offset=log.start,
            log_end_offset=log.end,
        )

    for position in positions(log.end + 3, epoch + 3):
        assert outcome(log.check_position, position) == outcome(by_broker, position), (position, ends)


def test_a_truncated_log_is_as_if_the_rest_had_never_come() -> None:
    log, twin = MemoryLog(STREAM_ID, 0), MemoryLog(STREAM_ID, 0)
    for number in range(9):
        data = batch(b"v", b"w", producer_id=1, sequence=2 * number)
        for one in (log, twin) if number < 5 else (log,):
            one.append(data, leader_epoch=1 + number // 3, now_us=number)
    log.truncate(11)
    assert (log.end, log.batches) == (10, twin.batches)
    for sequence in range(0, 20, 2):
        header = BatchHeader.unpack(batch(b"v", b"w", producer_id=1, sequence=sequence))
        assert outcome(log.check, header, None) == outcome(twin.check, header, None)
    for position in positions(14, 5):
        assert outcome(log.check_position, position) == outcome(twin.check_position, position)


def positions(offsets: int, epochs: int) -> list[Position]:
    """All below these, and those without an epoch."""
    return [Position(offset, epoch) for offset in range(offsets) for epoch in (None, *range(epochs))]


class _UpToDate:
    """A controller whose image is the newest."""

    def __init__(self, next_producer_id: int) -> None:
        self.image = ClusterImage(next_producer_id=next_producer_id)

    async def newest(self) -> ClusterImage:
        return self.image


@pytest.mark.parametrize("producer_id", [0, 1, 1000, 1001, (1 << 63) - 1, 1 << 63, NO_PRODUCER_ID])
async def test_producer_ids_are_taken_and_refused_as_by_the_broker(producer_id: int) -> None:
    by_broker: object = None
    try:
        await ProducerIds(_UpToDate(1001)).check(producer_id)  # type: ignore[arg-type]
    except errors.TidelogError as error:
        by_broker = type(error).__name__
    by_log = outcome(check_producer_id, producer_id, 1001)
    assert (None if by_log is None else by_log[0]) == by_broker  # type: ignore[index]
