"""The offsets, epochs and stream ids that the options stand for in the logs now.

Here the driver asks the brokers: each function sends one round of concurrent requests for all streams. The
results are marks (`offsets`), from which everything else is planned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    PartitionNotFound,
    StreamNotFound,
    TidelogError,
)
from tidelog.model import FoundPosition, FoundPositions, Position
from tidelog.reader import Start
from tidelog_spark import cluster
from tidelog_spark.offsets import Mark, Offsets, PartitionKey
from tidelog_spark.options import Options
from tidelog_spark.points import Bound, Edge, Moment

REMEDY: Final = "set failOnDataLoss to false to continue without them"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reach:
    """The logs that the options choose, as they are now."""

    marks: Mapping[PartitionKey, Mark]
    """The end of each partition; `first` is the start of its log."""
    missing: tuple[TidelogError, ...] = ()
    """Streams and partitions that the options name and that do not exist: `StreamNotFound`,
    `PartitionNotFound`."""

    def complete(self) -> Mapping[PartitionKey, Mark]:
        """The marks; raises the first error of `missing`."""
        for error in self.missing:
            raise error
        return self.marks


def reachable(options: Options) -> Reach:
    """The end of every chosen partition now."""
    brokers, chosen = cluster.of(options.servers), options.chosen
    names = chosen.streams
    if chosen.pattern is not None:
        names = brokers.streams_matching(chosen.pattern, options.retries)
    starts: dict[str, Start | Mapping[int, Start]] = dict.fromkeys(names, "latest")
    if chosen.assigned is not None:
        starts = {name: dict.fromkeys(numbers, "latest") for name, numbers in chosen.assigned.items()}
    found = brokers.find(starts, options.retries)
    marks: dict[PartitionKey, Mark] = {}
    missing: list[TidelogError] = []
    for name in names:
        stream = found.get(name)
        if stream is not None:
            missing += _take(stream, marks)
        elif chosen.pattern is None:
            # A stream that only matches the pattern was deleted since: it is no longer chosen.
            missing.append(cluster.no_stream(name, "subscribe" if chosen.assigned is None else "assign"))
    return Reach(marks, tuple(missing))


def _take(stream: FoundPositions, marks: dict[PartitionKey, Mark]) -> list[TidelogError]:
    """Adds the marks of one stream; returns the errors of partitions that do not exist.

    Only `assign` names partitions, so it names those that do not exist.
    """
    missing: list[TidelogError] = []
    for number, error in stream.errors.items():
        if not isinstance(error, PartitionNotFound):
            raise error
        sentence = f"assign names partition {stream.name}/{number}, but {error.message}"
        missing.append(PartitionNotFound(sentence, stream=stream.name))
    for number, place in sorted(stream.positions.items()):
        marks[PartitionKey(stream.name, number)] = Mark(
            stream.stream_id, place.position, place.log_start_offset
        )
    return missing


def marks_at(bound: Bound, reach: Offsets, options: Options) -> dict[PartitionKey, Mark]:
    """The marks of a start or an end in logs that reach from `first` to the position of `reach`.

    Raises `InvalidRequest` if a partition is missing or is not read, and `OffsetOutOfRange` for an offset
    that is not in the log (without `failOnDataLoss` it warns and uses the nearest offset), or where no
    record has a starting timestamp.
    """
    _check_named(bound, reach)
    points = {key: bound.at(*key) for key in reach}
    moments: dict[str, dict[int, Start]] = {}
    for key, point in points.items():
        if isinstance(point, Moment):
            moments.setdefault(key.stream, {})[key.partition] = point.datetime
    found = cluster.of(options.servers).find(moments, options.retries)
    marks = {}
    for key, mark in reach.items():
        point = points[key]
        if isinstance(point, Moment):
            place = _found(key, mark, found)
            marks[key] = _mark_at_moment(bound, key, point, place, mark, options)
        else:
            marks[key] = _mark_at(bound, key, point, mark, options)
    return marks


def _check_named(bound: Bound, reach: Offsets) -> None:
    if not isinstance(bound.points, Mapping):
        return
    named = {PartitionKey(stream, number) for stream, numbers in bound.points.items() for number in numbers}
    for key in sorted(named - reach.keys()):
        raise InvalidRequest(f"{bound.option} names partition {key}, which is not read; remove it")
    for key in sorted(reach.keys() - named):
        raise InvalidRequest(
            f"{bound.option} lacks partition {key}; name every partition that is read, as in "
            f'{{"{key.stream}": {{"{key.partition}": …}}}}'
        )


def _found(key: PartitionKey, mark: Mark, found: Mapping[str, FoundPositions]) -> FoundPosition:
    """The answer for one partition of the stream that `mark` belongs to."""
    stream = found.get(key.stream)
    if stream is None or stream.stream_id != mark.stream_id:
        raise StreamNotFound(
            f"the stream {key.stream} was deleted while the query was planned; start the query again"
        )
    error = stream.errors.get(key.partition)
    if error is not None:
        raise error
    return stream.positions[key.partition]


def _mark_at_moment(
    bound: Bound, key: PartitionKey, moment: Moment, place: FoundPosition, reach: Mark, options: Options
) -> Mark:
    if place.position.offset < reach.position.offset:
        return Mark(reach.stream_id, place.position, place.position.offset)
    if bound.is_start and not options.latest_if_no_record:
        raise OffsetOutOfRange(
            f"{bound.option} is {moment} for {key}, but no record there has this timestamp or a later one; "
            "set startingOffsetsByTimestampStrategy to 'latest' to start at the end of such partitions"
        )
    return reach._replace(first=reach.position.offset)


def _mark_at(bound: Bound, key: PartitionKey, point: Edge | int, reach: Mark, options: Options) -> Mark:
    end = reach.position
    if point is Edge.EARLIEST:
        return reach._replace(position=Position(reach.first))
    if point is Edge.LATEST:
        return reach._replace(first=end.offset)
    if not reach.first <= point <= end.offset:
        sentence = (
            f"{bound.option} is {point} for {key}, but the log begins at {reach.first} and its next "
            f"offset is {end.offset}"
        )
        if options.fail_on_data_loss:
            raise OffsetOutOfRange(f"{sentence}; {REMEDY}")
        point = min(max(point, reach.first), end.offset)
        log.warning("%s; %d is used instead", sentence, point)
    return Mark(reach.stream_id, end if point == end.offset else Position(point), point)


def check_order(start: Bound, begins: Offsets, end: Bound, ends: Offsets) -> None:
    """Raises `InvalidRequest` if a partition's start lies behind its end, by offsets that the user gave.

    By timestamps it may: the records of a log are not in the order of their timestamps. Then nothing is
    read from the partition.
    """
    for key, begin in begins.items():
        if isinstance(start.at(*key), Moment) or isinstance(end.at(*key), Moment):
            continue
        if begin.position.offset > ends[key].position.offset:
            raise InvalidRequest(
                f"{start.option} is {begin.position.offset} for {key}, which lies behind {end.option} "
                f"({ends[key].position.offset}); the end must not lie before the start"
            )


def with_epochs(marks: Mapping[PartitionKey, Mark], options: Options) -> dict[PartitionKey, Mark]:
    """Adds the epochs to marks in the middle of a log (R13).

    A mark whose record is gone stays as it is: the task that reads up to there reports the loss.
    """
    starts: dict[str, dict[int, Start]] = {}
    for key, mark in marks.items():
        if mark.position.leader_epoch is None and mark.position.offset > mark.first:
            starts.setdefault(key.stream, {})[key.partition] = mark.position.offset
    answers = cluster.of(options.servers).find(starts, options.retries)
    found = dict(marks)
    for name, stream in answers.items():
        for number, place in stream.positions.items():
            key = PartitionKey(name, number)
            if found[key].stream_id == stream.stream_id:
                found[key] = found[key]._replace(position=place.position)
    return found
