"""The check of a history against the promises of a log.

It works on runs, with the content of each partition as all reads together show it: one pass over the
writes, one over the reads, one over the content per partition, and no work per record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tidelog.history.content import Run, content_of, covered, ranges_of
from tidelog.history.operations import Anomaly, History, Outcome, Producer, Write

EXAMPLES_MAX: Final = 10
"""The most examples of each kind of anomaly; all anomalies are counted."""


@dataclass
class Report:
    """The result of a check."""

    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    """Records by the answer to their producer: acknowledged, refused (definite), or unknown (indefinite)."""
    read: int = 0
    """Records read, each counted as often as it was read."""
    content: int = 0
    """Records in the log, as far as readers have read it."""
    anomalies: Counter[Anomaly] = field(default_factory=Counter)
    """The number of records by kind of anomaly."""
    examples: list[str] = field(default_factory=list)
    """Sentences that describe the first few anomalies of each kind."""

    @property
    def ok(self) -> bool:
        return not self.anomalies

    def found(self, anomaly: Anomaly, records: int, sentence: str) -> None:
        """Adds an anomaly of this number of records."""
        if sum(example.startswith(f"{anomaly}: ") for example in self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{anomaly}: {sentence}")
        self.anomalies[anomaly] += records


def check(history: History) -> Report:
    """Checks a history and reports its anomalies."""
    report = Report()
    writes: dict[int, list[Write]] = {}
    for write in history.writes:
        writes.setdefault(write.partition, []).append(write)
        match write.outcome:
            case Outcome.ACKNOWLEDGED:
                report.acknowledged += write.records
            case Outcome.REFUSED:
                report.refused += write.records
            case Outcome.UNKNOWN:
                report.unknown += write.records
    reads: dict[int, list[Run]] = {}
    for read in history.reads:
        report.read += read.records
        reads.setdefault(read.partition, []).append(Run(read.offset, read.producer, read.first, read.records))
    for partition in sorted({*writes, *reads}):
        content, conflicts = content_of(reads.get(partition, []))
        for known, other, records in conflicts:
            report.found(
                Anomaly.INCONSISTENT_OFFSET,
                records,
                f"partition {partition} offset {known.offset} was read as {known} and as {other}",
            )
        report.content += sum(run.records for run in content)
        _check_partition(history, partition, content, writes.get(partition, []), report)
    _check_readers(history, report)
    return report


def _check_partition(
    history: History, partition: int, content: list[Run], writes: list[Write], report: Report
) -> None:
    by_producer: dict[int, list[Run]] = {}
    for run in content:
        by_producer.setdefault(run.producer, []).append(run)
    sent: dict[int, list[Write]] = {}
    for write in writes:
        sent.setdefault(write.producer, []).append(write)
    for producer in sorted({*by_producer, *sent}):
        facts = history.producers.get(producer, Producer(f"producer {producer}"))
        runs = by_producer.get(producer, [])
        ours = sorted(sent.get(producer, []), key=lambda write: write.first)
        _check_order(partition, facts, runs, report)
        _check_sent(partition, facts, sorted(runs, key=lambda run: run.first), ours, report)
    start = history.starts.get(partition, 0)
    reached = history.last_readers.get(partition)
    _check_acknowledged(partition, content, by_producer, writes, start, reached, report)


def _check_order(partition: int, producer: Producer, runs: list[Run], report: Report) -> None:
    """Checks that the numbers of a producer grow with the offsets, and that each is in the log once."""
    if producer.ordered and not producer.repeats:
        highest = -1
        for run in runs:
            if run.first <= highest and not _is_repeat(run, runs):
                report.found(
                    Anomaly.REORDERED,
                    min(run.records, highest + 1 - run.first),
                    f"partition {partition}: {producer.name} number {run.first} at offset {run.offset} "
                    f"stands behind number {highest}",
                )
            highest = max(highest, run.first + run.records - 1)
    if not producer.repeats:
        for earlier, later in pairwise(sorted(runs, key=lambda run: (run.first, run.offset))):
            twice = earlier.first + earlier.records - later.first
            if twice > 0:
                report.found(
                    Anomaly.DUPLICATE,
                    min(twice, later.records),
                    f"partition {partition}: {producer.name} number {later.first} is at offset "
                    f"{earlier.offset + later.first - earlier.first} and at {later.offset}",
                )


def _is_repeat(run: Run, runs: list[Run]) -> bool:
    """Whether all records of the run are also at earlier offsets: a duplicate, not a wrong order."""
    return any(
        other.offset < run.offset
        and other.first <= run.first
        and run.first + run.records <= other.first + other.records
        for other in runs
    )


def _check_sent(
    partition: int, producer: Producer, runs: list[Run], writes: list[Write], report: Report
) -> None:
    """Checks that the records in the log were sent and not refused. Both lists are sorted by number."""
    firsts = [write.first for write in writes]
    for run in runs:
        number, end = run.first, run.first + run.records
        while number < end:
            at = bisect_right(firsts, number) - 1
            write = writes[at] if at >= 0 else None
            if write is None or number >= write.first + write.records:
                following = firsts[at + 1] if at + 1 < len(firsts) else end
                stop = min(end, following)
                report.found(
                    Anomaly.PHANTOM,
                    stop - number,
                    f"partition {partition} offset {run.offset + number - run.first} holds {producer.name} "
                    f"number {number}, which it never sent there",
                )
            else:
                stop = min(end, write.first + write.records)
                if write.outcome is Outcome.REFUSED:
                    report.found(
                        Anomaly.REFUSED_BUT_THERE,
                        stop - number,
                        f"partition {partition} offset {run.offset + number - run.first} holds "
                        f"{producer.name} number {number}, which was definitely refused",
                    )
            number = stop


def _check_acknowledged(
    partition: int,
    content: list[Run],
    by_producer: dict[int, list[Run]],
    writes: list[Write],
    start: int,
    reached: int | None,
    report: Report,
) -> None:
    """Checks that acknowledged records are in the log, at the acknowledged offset."""
    known_end = max(content[-1].end if content else 0, reached or 0)
    by_number = {producer: sorted(runs, key=lambda run: run.first) for producer, runs in by_producer.items()}
    for write in writes:
        if write.outcome is not Outcome.ACKNOWLEDGED:
            continue
        if write.offset is None:
            missing = list(_missing(write, by_number.get(write.producer, [])))
            if missing:
                where = Anomaly.LOST if reached == known_end else Anomaly.UNSEEN
                report.found(
                    where,
                    sum(count for _, count in missing),
                    f"partition {partition}: number {missing[0][0]} of producer {write.producer} "
                    "was acknowledged and is nowhere",
                )
            continue
        _check_place(partition, write, content, start, known_end, report)


def _missing(write: Write, runs: list[Run]) -> Iterator[tuple[int, int]]:
    """The numbers of a write that are in none of the runs; the runs are sorted by number."""
    number, end = write.first, write.first + write.records
    index = max(0, bisect_right(runs, number, key=lambda run: run.first) - 1)
    for run in runs[index:]:
        if run.first >= end:
            break
        if run.first > number:
            yield number, run.first - number
        number = max(number, run.first + run.records)
    if number < end:
        yield number, end - number


def _check_place(
    partition: int, write: Write, content: list[Run], start: int, known_end: int, report: Report
) -> None:
    assert write.offset is not None
    at, end = max(write.offset, start), write.offset + write.records
    index = max(0, bisect_right(content, at, key=lambda run: run.offset) - 1)
    while at < end:
        while index < len(content) and content[index].end <= at:
            index += 1
        run = content[index] if index < len(content) else None
        number = write.first + at - write.offset
        if run is None or run.offset > at:
            beyond = run is None and at >= known_end
            if run is not None:
                stop = min(end, run.offset)
            else:
                stop = end if beyond else min(end, known_end)
            report.found(
                Anomaly.UNSEEN if beyond else Anomaly.LOST,
                stop - at,
                f"partition {partition}: producer {write.producer} number {number} was acknowledged at "
                f"offset {at}; "
                + (f"the log was read up to {known_end} only" if beyond else "nothing was read there"),
            )
        else:
            stop = min(end, run.end)
            found = run.cut(at, stop)
            if (found.producer, found.first) != (write.producer, number):
                report.found(
                    Anomaly.WRONG_OFFSET,
                    stop - at,
                    f"partition {partition} offset {at} holds {found}; producer {write.producer} was "
                    f"told that it is its number {number}",
                )
        at = stop


def _check_readers(history: History, report: Report) -> None:
    """Checks that each reader moves forward and skips no record."""
    present = ranges_of(history.reads)
    expected: dict[tuple[int, int], int] = {}
    rewinds = {key: deque(sorted(indexes)) for key, indexes in history.rewinds.items()}
    for index, read in enumerate(history.reads):
        key = (read.reader, read.partition)
        rewound = False
        while rewinds.get(key) and rewinds[key][0] <= index:
            rewinds[key].popleft()
            rewound = True
        at = None if rewound else expected.get(key)
        if at is not None and read.offset < at:
            report.found(
                Anomaly.BACKWARDS,
                min(read.records, at - read.offset),
                f"reader {read.reader} of partition {read.partition} stood at {at} and read {read.offset}",
            )
        elif at is not None and read.offset > at:
            skipped = covered(present[read.partition], at, read.offset)
            if skipped:
                report.found(
                    Anomaly.SKIPPED,
                    skipped,
                    f"reader {read.reader} of partition {read.partition} went from {at} to {read.offset}; "
                    f"{skipped} records lie between",
                )
        expected[key] = max(at or 0, read.offset + read.records)
