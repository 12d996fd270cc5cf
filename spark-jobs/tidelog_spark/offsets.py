"""The position of a streaming query in its checkpoint: a JSON document.

    {"version": 1, "streams": {"orders": {"id": "5c0e…", "partitions": {
        "0": {"epoch": 3, "first": 0, "offset": 1200}}}}}

`offset` is the next record to read, and `epoch` is the leader epoch of the record before it (R13): it shows
whether the log was truncated and written again. `id` shows whether the stream was deleted and created
again. `first` is the offset at which the query began with the partition: a partition that is added during a
query is read from there again, exactly.

Spark compares two documents as text, so each position has one order and one spelling. Pure. `planning`
chooses the next offsets; `stream` has the methods that Spark calls.
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
    """A partition by stream name and number. Another stream may have the name later."""

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


class Mark(NamedTuple):
    """The position of a query in one partition."""

    stream_id: bytes
    position: Position
    """The next record to read, and the epoch of the record before it."""
    first: int
    """The offset at which this query began with the partition."""


Offsets = Mapping[PartitionKey, Mark]


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one partition from `start` to `end`, without `end`."""

    key: PartitionKey
    stream_id: bytes
    start: Position
    end: Position
    """Its epoch is that of the last record of the range, if known."""

    @property
    def count(self) -> int:
        return self.end.offset - self.start.offset

    def __str__(self) -> str:
        return f"{self.key} offsets {self.start.offset}–{self.end.offset - 1}"


def to_document(offsets: Offsets) -> dict[str, Any]:
    """The document that Spark writes into the checkpoint, in a fixed order."""
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
    """Reads a document of `to_document`; raises `InvalidRequest` for any other."""
    if isinstance(document, dict) and document.get("version") not in (None, VERSION):
        raise InvalidRequest(
            f"the checkpoint has offsets of version {document['version']!r}, but this release knows version "
            f"{VERSION}; run the query with the release that wrote them"
        )
    try:
        return dict(_marks(document))
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest):
        text = json.dumps(document, default=str)[:200]
        raise InvalidRequest(
            f"the checkpoint has {text}, which are not Tidelog offsets; give each query its own checkpoint"
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
    """The ranges between two documents, in order; always the same for the same documents.

    A partition that is not in `start`, or is there with another stream id, begins at its `first`.
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
