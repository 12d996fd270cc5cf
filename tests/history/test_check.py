"""A test of the test: each anomaly, planted into a history without any, is found and named."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from history.twin import dumb_check
from tidelog.history import (
    STAMP_BYTES,
    Anomaly,
    History,
    Outcome,
    Producer,
    Read,
    Write,
    check,
    runs_of,
    stamp,
)


def honest(seed: int, batches: int = 30) -> History:
    """Three producers, two partitions, two readers, refusals and unknown outcomes; nothing wrong."""
    rng = random.Random(seed)
    history = History(producers={number: Producer(f"p{number}") for number in range(3)})
    ends, numbers = [0, 0], Counter[tuple[int, int]]()
    logs: list[list[tuple[int, int, int, int]]] = [[], []]
    for _ in range(batches):
        producer, partition, records = rng.randrange(3), rng.randrange(2), rng.randint(1, 9)
        # Numbers are a partition's own, so that they lie behind each other there.
        first = numbers[producer, partition]
        numbers[producer, partition] += records
        outcome = rng.choices([*Outcome], [8, 1, 1])[0]
        there = outcome is Outcome.ACKNOWLEDGED or (outcome is Outcome.UNKNOWN and rng.random() < 0.5)
        offset = ends[partition] if outcome is Outcome.ACKNOWLEDGED else None
        history.writes.append(Write(producer, partition, first, records, outcome, offset))
        if there:
            logs[partition].append((ends[partition], producer, first, records))
            ends[partition] += records
    for reader in range(2):
        for partition, log in enumerate(logs):
            for offset, producer, first, records in log:
                cut = rng.randint(0, records) if reader else 0
                for part, length in ((0, cut), (cut, records - cut)):
                    if length:
                        read = Read(reader, partition, offset + part, producer, first + part, length)
                        history.reads.append(read)
    history.last_readers = dict(enumerate(ends))
    return history


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_history_has_no_anomaly(seed: int) -> None:
    report = check(honest(seed))
    assert report.ok, report.examples
    assert report.acknowledged > 0
    assert report.content > 0
    assert report.read == 2 * report.content


def of(history: History, *, outcome: Outcome = Outcome.ACKNOWLEDGED, records: int = 1) -> int:
    """Index of a write in the middle, with at least so many records."""
    found = [
        index
        for index, write in enumerate(history.writes)
        if write.outcome is outcome and write.records >= records
    ]
    return found[len(found) // 2]


def without(history: History, partition: int, start: int, end: int) -> None:
    """Nobody read these offsets."""
    kept = []
    for read in history.reads:
        if read.partition == partition:
            before = max(0, min(read.records, start - read.offset))
            after = max(0, min(read.records, read.offset + read.records - end))
            if before:
                kept.append(read._replace(records=before))
            if after:
                skip = read.records - after
                kept.append(read._replace(offset=read.offset + skip, first=read.first + skip, records=after))
        else:
            kept.append(read)
    history.reads = kept


def lose(history: History) -> Anomaly:
    write = history.writes[of(history)]
    assert write.offset is not None
    without(history, write.partition, write.offset, write.offset + write.records)
    return Anomaly.LOST


def lose_the_end(history: History) -> Anomaly:
    partition = history.writes[of(history)].partition
    end = history.last_readers[partition]
    without(history, partition, end - 3, end)
    history.last_readers[partition] = end - 3
    return Anomaly.UNSEEN


def double(history: History) -> Anomaly:
    write = history.writes[of(history)]
    end = history.last_readers[write.partition]
    history.reads.append(Read(0, write.partition, end, write.producer, write.first, write.records))
    return Anomaly.DUPLICATE


def reorder(history: History) -> Anomaly:
    history.writes += [
        Write(1, 7, 0, 5, Outcome.UNKNOWN),
        Write(1, 7, 5, 5, Outcome.UNKNOWN),
    ]
    history.reads += [Read(0, 7, 0, 1, 5, 5), Read(0, 7, 5, 1, 0, 5)]
    return Anomaly.REORDERED


def disagree(history: History) -> Anomaly:
    read = next(read for read in history.reads if read.reader == 1)
    at = history.reads.index(read)
    history.reads[at] = read._replace(producer=(read.producer + 1) % 3)
    return Anomaly.INCONSISTENT_OFFSET


def misplace(history: History) -> Anomaly:
    at = of(history)
    write = history.writes[at]
    assert write.offset is not None
    history.writes[at] = write._replace(offset=write.offset + 1)
    return Anomaly.WRONG_OFFSET


def keep_what_was_refused(history: History) -> Anomaly:
    at = of(history)
    history.writes[at] = history.writes[at]._replace(outcome=Outcome.REFUSED, offset=None)
    return Anomaly.REFUSED_BUT_THERE


def invent(history: History) -> Anomaly:
    end = history.last_readers[0]
    history.reads.append(Read(0, 0, end, 2, 10_000, 4))
    history.rewind(0, 0)
    return Anomaly.PHANTOM


def skip(history: History) -> Anomaly:
    ours = [read for read in history.reads if read.reader == 0 and read.partition == 0]
    history.reads.remove(ours[len(ours) // 2])
    return Anomaly.SKIPPED


def go_back(history: History) -> Anomaly:
    ours = [read for read in history.reads if read.reader == 0 and read.partition == 0]
    history.reads.append(ours[len(ours) // 2])
    return Anomaly.BACKWARDS


PLANTED = [
    lose, lose_the_end, double, reorder, disagree, misplace, keep_what_was_refused, invent, skip, go_back
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("seed", range(5))
def test_a_planted_anomaly_is_found_and_named(plant: object, seed: int) -> None:
    assert callable(plant)
    history = honest(seed, batches=60)
    anomaly = plant(history)
    report = check(history)
    assert report.anomalies[anomaly] > 0, (anomaly, report)
    assert any(example.startswith(f"{anomaly}: ") for example in report.examples)


def test_every_anomaly_of_a_history_is_planted() -> None:
    planted = {plant(honest(1, batches=60)) for plant in PLANTED}
    assert planted == set(Anomaly) - {Anomaly.DIVERGENT}, "divergence is found by comparing replicas"


def test_a_reader_that_was_told_of_a_truncation_may_go_back() -> None:
    history = honest(3)
    read = history.reads[0]
    history.rewind(read.reader, read.partition)
    history.reads.append(read)
    assert check(history).ok


def test_a_rewind_is_that_readers_next_read_whatever_others_read_between() -> None:
    history = honest(3)
    ours, theirs = history.reads[0], next(read for read in history.reads if read.reader == 1)
    history.rewind(ours.reader, ours.partition)
    history.rewind(theirs.reader, theirs.partition)
    history.reads += [theirs, ours]
    assert check(history).ok


def test_what_retention_took_is_not_lost() -> None:
    history = honest(3, batches=60)
    write = history.writes[of(history)]
    assert write.offset is not None
    end = write.offset + write.records
    without(history, write.partition, 0, end)
    assert not check(history).ok
    history.starts[write.partition] = end
    assert check(history).ok


def test_a_producer_that_repeats_may_double_but_not_lose() -> None:
    history = honest(3)
    history.producers = {number: Producer(f"p{number}", repeats=True) for number in range(3)}
    double(history)
    history.rewinds[0, history.reads[-1].partition] = [len(history.reads) - 1]
    assert check(history).ok
    lose(history)
    assert check(history).anomalies[Anomaly.LOST]


@given(
    seed=st.integers(0, 1 << 30),
    plants=st.lists(st.sampled_from([lose, lose_the_end, misplace, keep_what_was_refused, skip, go_back])),
)
@example(seed=4925, plants=[lose, *[lose_the_end] * 6])
def test_the_count_is_that_of_going_through_it_record_by_record(seed: int, plants: list[object]) -> None:
    history = honest(seed, batches=40)
    for plant in plants:
        assert callable(plant)
        with contextlib.suppress(IndexError, ValueError):  # nothing is left to spoil
            plant(history)
    ours = Counter({
        anomaly: count
        for anomaly, count in check(history).anomalies.items()
        if anomaly not in (Anomaly.DUPLICATE, Anomaly.REORDERED)
    })  # fmt: skip
    assert ours == dumb_check(history)


def test_values_come_back_as_runs() -> None:
    values = (
        [stamp(1, n) for n in (0, 1, 2)] + [stamp(2, n, 100) for n in (3, 4)] + [stamp(2, 9), stamp(2, 8)]
    )
    array = pa.array(values, pa.binary())
    assert list(runs_of(array)) == [(0, 1, 0, 3), (3, 2, 3, 2), (5, 2, 9, 1), (6, 2, 8, 1)]
    assert len(values[3]) == 100
    assert len(values[0]) == STAMP_BYTES
    assert list(runs_of(array[:0])) == []


def test_a_record_of_somebody_else_is_named() -> None:
    with pytest.raises(ValueError, match="index 1 was not written by a test load: b'hello'"):
        list(runs_of(pa.array([stamp(1, 1), b"hello"], pa.binary())))
