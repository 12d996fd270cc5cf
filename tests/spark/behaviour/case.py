"""What the table of behaviour says of an option: good values and their effect, bad values and their sentence.

`reads`, `typed_values` and `writes` have the table. Streams have fixed names (`streams`), so that a case
names them in its options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]

PLACE = ("partition", "offset")


@dataclass(frozen=True, slots=True)
class Good:
    """A read that succeeds, and what it gives. Fields that are None are not looked at."""

    options: Mapping[str, str]
    """With the option in question. Without a stream: `subscribe=orders`."""
    found: Sequence[Row] | None = None
    """The sorted rows of `select`."""
    select: Sequence[str] = PLACE
    """Columns, or fields of the value, as in `value.id`."""
    columns: Sequence[str] | None = None
    """The names of the columns, in their order."""
    tasks: int | None = None
    """Of a batch read."""
    batches: Sequence[int] | None = None
    """A streaming read with Trigger.AvailableNow: the rows of each micro-batch. None: a batch read."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A read or a write that fails with exactly this sentence."""

    options: Mapping[str, str]
    sentence: str
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A write of the rows `0` to `99` that succeeds, and what the stream then has."""

    options: Mapping[str, str]
    times: int = 1
    """How often the same write is repeated."""
    records: int = 100
    compression: int = 0
    """In the header of the stored batches."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything about one option."""

    good: Sequence[Good | Written]
    bad: Sequence[Bad]
    elsewhere: str = ""
    """`file::test`, below tests/spark: it shows what needs a running query, or a broker that is away."""


Table = Mapping[str, Case]


def at(partition: int, *offsets: int) -> list[Row]:
    """Rows of `PLACE`."""
    return [(partition, offset) for offset in offsets]
