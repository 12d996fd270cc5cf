"""What a decoder answers: the columns of each value, and why a value could not be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

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
