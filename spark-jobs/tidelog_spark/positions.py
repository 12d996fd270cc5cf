"""The offsets, epochs and stream ids that the options stand for in the logs now.

Here the driver asks the brokers. The results are marks (`offsets`), from which everything else is planned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidelog.errors import InvalidRequest, OffsetOutOfRange, PartitionNotFound
from tidelog.model import Position
from tidelog_spark import cluster
from tidelog_spark.cluster import StreamState
from tidelog_spark.offsets import Mark, Offsets, PartitionKey
from tidelog_spark.options import Edge, Options, Point, Points

REMEDY = "set failOnDataLoss to false to continue without them"

log = logging.getLogger(__name__)


def reachable(options: Options) -> dict[PartitionKey, Mark]:
    """The end of every chosen partition now; `first` is the start of its log.

    Raises `StreamNotFound` and `PartitionNotFound`.
    """
    brokers = cluster.of(options.servers)
    found: dict[PartitionKey, Mark] = {}
    for name in options.streams:
        state = brokers.state(name)
        numbers = _chosen(state, options)
        ends = brokers.resolve(name, dict.fromkeys(numbers, "latest"))
        for number in numbers:
            mark = Mark(state.stream_id, ends[number], state.log_start_offsets[number])
            found[PartitionKey(name, number)] = mark
    return found


def _chosen(state: StreamState, options: Options) -> list[int]:
    there = sorted(state.high_watermarks)
    if options.assigned is None:
        return there
    wanted = options.assigned[state.name]
    for number in wanted:
        if number not in state.high_watermarks:
            raise PartitionNotFound.numbered(number, stream=state.name, count=len(there))
    return list(wanted)


def marks_at(option: str, points: Points, reach: Offsets, options: Options) -> dict[PartitionKey, Mark]:
    """The marks of `points` in logs that reach from `first` to the position of `reach`.

    Raises `InvalidRequest` if a partition is missing or is not read, and `OffsetOutOfRange` for an offset
    that is not in the log (without `failOnDataLoss` it warns and uses the nearest offset).
    """
    _check_named(option, points, reach)
    return {key: _mark_at(option, key, _point(points, key), mark, options) for key, mark in reach.items()}


def _point(points: Points, key: PartitionKey) -> Point:
    return points if isinstance(points, Edge) else points[key.stream][key.partition]


def _check_named(option: str, points: Points, reach: Offsets) -> None:
    if isinstance(points, Edge):
        return
    named = {PartitionKey(stream, number) for stream, numbers in points.items() for number in numbers}
    for key in sorted(named - reach.keys()):
        raise InvalidRequest(f"{option} names partition {key}, which is not read; remove it")
    for key in sorted(reach.keys() - named):
        raise InvalidRequest(
            f"{option} lacks partition {key}; name every partition that is read, "
            f'with an offset, "earliest" or "latest"'
        )


def _mark_at(option: str, key: PartitionKey, point: Point, reach: Mark, options: Options) -> Mark:
    end = reach.position
    if point is Edge.EARLIEST:
        return reach._replace(position=Position(reach.first))
    if point is Edge.LATEST:
        return reach._replace(first=end.offset)
    if not reach.first <= point <= end.offset:
        sentence = (
            f"{option} is {point} for {key}, but the log begins at {reach.first} and its next "
            f"offset is {end.offset}"
        )
        if options.fail_on_data_loss:
            raise OffsetOutOfRange(f"{sentence}; {REMEDY}")
        point = min(max(point, reach.first), end.offset)
        log.warning("%s; %d is used instead", sentence, point)
    return Mark(reach.stream_id, end if point == end.offset else Position(point), point)


def with_epochs(marks: Mapping[PartitionKey, Mark], options: Options) -> dict[PartitionKey, Mark]:
    """Adds the epochs to marks in the middle of a log (R13)."""
    brokers = cluster.of(options.servers)
    open_ones: dict[str, dict[int, int]] = {}
    for key, mark in marks.items():
        if mark.position.leader_epoch is None and mark.position.offset > mark.first:
            open_ones.setdefault(key.stream, {})[key.partition] = mark.position.offset
    found = dict(marks)
    for stream, offsets in open_ones.items():
        try:
            resolved = brokers.resolve(stream, offsets)
        except OffsetOutOfRange:
            # Retention has deleted it; the task that reads up to there reports this.
            continue
        for number, position in resolved.items():
            key = PartitionKey(stream, number)
            found[key] = found[key]._replace(position=position)
    return found
