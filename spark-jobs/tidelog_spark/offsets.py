"""Where a streaming query stands, as it lies in its checkpoint: a JSON document of ours.

    {"version": 1, "streams": {"orders": {"id": "5c0e…", "partitions": {
        "0": {"epoch": 3, "first": 0, "offset": 1200}}}}}

`offset` is the next record to read and `epoch` the leader epoch of the one before it
(R13), so that a log that was truncated and written again is noticed; the stream's id
notices one that was deleted and created again. `first` is where the query began with the
partition: a partition that enters in the middle of a query is re-read from there exactly.

Spark compares two documents as text, hence one order and one spelling for each meaning.
Pure. Neighbours: `planning` decides the next offsets, `stream` speaks with Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.errors import InvalidRequest
from tidelog.model import Position, id_bytes, id_text

VERSION: Final = 1


class PartitionKey(NamedTuple):
    """A partition of a stream that may be deleted and come back as another."""

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


class Mark(NamedTuple):
    """How far a query has come with one partition."""

    stream_id: bytes
    position: Position
    """The next record to read, and the epoch of the one before it."""
    first: int
    """The offset where this query began with the partition."""


Offsets = Mapping[PartitionKey, Mark]


@dataclass(frozen=True, slots=True)
class Range:
    """Records to read: those of one partition from `start` up to, and without, `end`."""

    key: PartitionKey
    stream_id: bytes
    start: Position
    end: Position
    """Its epoch is that of the range's last record, if it is known."""

    @property
    def count(self) -> int:
        return self.end.offset - self.start.offset

    def __str__(self) -> str:
        return f"{self.key} offsets {self.start.offset}–{self.end.offset - 1}"


def to_document(offsets: Offsets) -> dict[str, Any]:
    """What Spark writes into the checkpoint, in one order."""
    streams: dict[str, Any] = {}
    for key in sorted(offsets):
        mark = offsets[key]
        entry = streams.setdefault(key.stream, {"id": id_text(mark.stream_id), "partitions": {}})
        epoch = mark.position.leader_epoch
        entry["partitions"][str(key.partition)] = {
            **({} if epoch is None else {"epoch": epoch}),
            "first": mark.first,
            "offset": mark.position.offset,
        }
    return {"version": VERSION, "streams": streams}


def from_document(document: object) -> dict[PartitionKey, Mark]:
    """Reads what `to_document` wrote; raises `InvalidRequest` for anything else."""
    if isinstance(document, dict) and document.get("version") not in (None, VERSION):
        raise InvalidRequest(
            f"the checkpoint holds offsets of version {document['version']!r}, this software knows version "
            f"{VERSION}; run the query with the release that wrote them"
        )
    try:
        return dict(_marks(document))
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest):
        text = json.dumps(document, default=str)[:200]
        raise InvalidRequest(
            f"the checkpoint holds {text}, which are no Tidelog offsets; does it belong to another query?"
        ) from None


def _marks(document: Any) -> Iterator[tuple[PartitionKey, Mark]]:
    if document["version"] != VERSION:
        raise ValueError
    for stream, entry in document["streams"].items():
        stream_id = id_bytes(entry["id"])
        for number, fields in entry["partitions"].items():
            position = Position(_number(fields["offset"]), _epoch(fields))
            yield PartitionKey(stream, int(number)), Mark(stream_id, position, _number(fields["first"]))


def _epoch(fields: Mapping[str, object]) -> int | None:
    return _number(fields["epoch"]) if "epoch" in fields else None


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def ranges_between(start: Offsets, end: Offsets) -> list[Range]:
    """What lies between two documents, in order; the same for the same documents, always.

    A partition that `start` does not have, or has of a stream that was another, begins
    at its `first`.
    """
    found = []
    for key in sorted(end):
        mark, before = end[key], start.get(key)
        if before is None or before.stream_id != mark.stream_id:
            begin = Position(mark.first)
        else:
            begin = before.position
        if begin.offset < mark.position.offset:
            found.append(Range(key, mark.stream_id, begin, mark.position))
    return found
