"""The named limits of a payload: what one hostile value may cost a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

DEPTH_MAX: Final = 100
"""Levels of objects and lists in a JSON value, and levels of a schema."""

DECODED_BYTES_MAX: Final = 256 << 20
"""The most bytes that one value may become; a value that could become more is a bad record."""

SLICE_BYTES: Final = 16 << 20
"""So many bytes of values are decoded at once; one longer value is decoded alone."""

CELL_BYTES: Final = 16
"""No scalar cell of a column takes more in Arrow, apart from its text or bytes."""

OBJECT_BYTES: Final = 128
"""No value of a cell takes more as a Python object, apart from its text or bytes.

Formats whose values become Python objects before they become columns keep to this rule: what a value takes is
counted from its bytes before any object is built. A value that takes more than `DECODED_BYTES_MAX` is a bad
record, and values are decoded together until they take that together.
"""

FIELDS_MAX: Final = 2000
"""The most fields of a payload's schema, all levels together."""

SCHEMA_CHARACTERS_MAX: Final = 256 << 10
"""The most characters of a schema; an Ingestion has the same limit."""

DESCRIPTOR_BYTES_MAX: Final = 4 << 20
"""The most bytes of a file with protobuf descriptors. Each task gets them."""


def slices(values: pa.Array) -> Iterator[pa.Array]:
    """Consecutive pieces of binary `values` of at most about `SLICE_BYTES`, each of at least one value."""
    if values.nbytes <= SLICE_BYTES:
        yield values
        return
    ends = pc.cumulative_sum(pc.fill_null(pc.binary_length(values), 0).cast(pa.int64())).to_numpy()
    begin, before = 0, 0
    while begin < len(values):
        end = max(begin + 1, int(ends.searchsorted(before + SLICE_BYTES, side="right")))
        yield values.slice(begin, end - begin)
        begin, before = end, int(ends[end - 1])
