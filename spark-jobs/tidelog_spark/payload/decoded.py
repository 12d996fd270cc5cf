"""What a decoder answers: the columns of each value, and why a value could not be decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tidelog_spark.payload.limits import DECODED_BYTES_MAX, slices

REASON_CHARACTERS_MAX = 300
"""A reason may quote the value; so much of it is kept."""


class BadValue(ValueError):
    """A value that is not what the schema says; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoded rows of some values: row n belongs to value n."""

    columns: pa.StructArray
    """Null: the value was null, or it is bad."""
    reasons: pa.StringArray
    """Why the value is bad; null: it is good."""

    def __repr__(self) -> str:
        bad = len(self.reasons) - self.reasons.null_count
        return f"<Decoded rows={len(self.columns)} bad={bad}>"


class Decoder(Protocol):
    """Decodes values of one format with one schema. Picklable: a task gets it from the driver."""

    @property
    def type(self) -> pa.StructType:
        """The Arrow type of the columns, as Spark wants it."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """The rows of `values`. A value is never an error: its row says why it is bad."""


def from_values(
    values: pa.BinaryArray, kind: pa.StructType, cost: Callable[[bytes], int], read: Callable[[bytes], Any]
) -> Decoded:
    """Rows of values that become Python objects first.

    `cost` tells, before `read` builds the objects, how many bytes a value takes as them and as columns. Both
    raise `BadValue`.
    """
    parts: list[Decoded] = []
    records: list[Any] = []
    reasons: list[str | None] = []
    held = 0
    for piece in slices(values):
        for value in piece.to_pylist():
            record = why = None
            try:
                if value is not None:
                    more = cost(value)
                    if more > DECODED_BYTES_MAX:
                        raise BadValue(f"the value would become more than {DECODED_BYTES_MAX} bytes")
                    held += more
                    if held > DECODED_BYTES_MAX:
                        parts.append(_columns(records, reasons, kind))
                        records, reasons, held = [], [], more
                    record = read(value)
            except BadValue as error:
                why = reason(error)
            records.append(record)
            reasons.append(why)
    parts.append(_columns(records, reasons, kind))
    return joined(parts, kind)


_REFUSED = (pa.ArrowException, ValueError, OverflowError, TypeError)
"""What Arrow raises if an object does not fit its column."""


def _columns(records: list[Any], reasons: list[str | None], kind: pa.StructType) -> Decoded:
    """The rows of records; a record that Arrow refuses is bad: a number may be too large for its column."""
    try:
        return from_records(records, reasons, kind)
    except _REFUSED:
        _find_bad(records, reasons, kind, 0, len(records))
        return from_records(records, reasons, kind)


def _find_bad(
    records: list[Any], reasons: list[str | None], kind: pa.StructType, begin: int, end: int
) -> None:
    """Halves what Arrow refuses until each bad record stands alone, so few bad records cost little."""
    try:
        pa.array(records[begin:end], kind)
    except _REFUSED as error:
        if end - begin == 1:
            records[begin], reasons[begin] = None, reason(error)
            return
        middle = (begin + end) // 2
        _find_bad(records, reasons, kind, begin, middle)
        _find_bad(records, reasons, kind, middle, end)


def from_records(records: Sequence[Any], reasons: Sequence[str | None], kind: pa.StructType) -> Decoded:
    """Rows from Python values, one for each value; None where a value is null or bad."""
    return Decoded(pa.array(records, kind), pa.array(reasons, pa.string()))


def joined(parts: Sequence[Decoded], kind: pa.StructType) -> Decoded:
    """The rows of `parts`, one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = pa.concat_arrays([part.columns for part in parts]) if parts else pa.array([], kind)
    reasons = pa.concat_arrays([part.reasons for part in parts]) if parts else pa.array([], pa.string())
    return Decoded(columns, reasons)


def reason(error: BaseException) -> str:
    """The text of an error as one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode()
