"""Converts columns that a writer chose to the columns of the payload, within a budget of bytes.

A few bytes of Arrow can mean many: a null column has only a length, and the indices of a dictionary may all
name its longest text. So each step counts what it will allocate before it does.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog_spark.payload.arrow_scan import too_large
from tidelog_spark.payload.decoded import BadValue, reason
from tidelog_spark.payload.json_records import width
from tidelog_spark.payload.limits import CELL_BYTES, DECODED_BYTES_MAX

ARROW_ERRORS: Final = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError)
"""What pyarrow raises for bytes or types that it cannot use."""


def _view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _text(kind: pa.DataType) -> bool:
    plain = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return bool(kind in plain or pa.types.is_fixed_size_binary(kind) or _view(kind))


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or _decimal(kind))


def _decimal(kind: pa.DataType) -> bool:
    # Arrow looks up powers of ten without a check, so another scale would read outside its table.
    return bool(pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision)


_CLASSES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    _text, _number, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp,
)  # fmt: skip
"""A column becomes a column of its own class only."""


def converted(rows: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """Rows as `kind`; raises `BadValue` if one does not fit, or if they would take too many bytes."""
    try:
        return _Conversion(DECODED_BYTES_MAX).array(rows, kind, "value")
    except ARROW_ERRORS as error:
        raise BadValue(reason(error)) from None


class _Conversion:
    """One conversion, with the bytes that are left for it."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise too_large()

    def _nulls(self, count: int, kind: pa.DataType) -> pa.Array:
        self._take(count * width(kind) * CELL_BYTES)
        return pa.nulls(count, kind)

    def array(self, array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
        """`array` as `kind`; `path` names it in errors."""
        if isinstance(array, pa.ExtensionArray):
            return self.array(array.storage, kind, path)
        if pa.types.is_null(array.type):
            return self._nulls(len(array), kind)
        self._take(len(array) * CELL_BYTES)
        if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
            return self._struct(array, kind, path)
        if pa.types.is_map(kind) and pa.types.is_map(array.type):
            return self._map(array, kind, path)
        if pa.types.is_list(kind) and _is_list(array.type):
            values = self.array(array.flatten(), kind.value_type, f"{path}[]")
            return pa.ListArray.from_arrays(_offsets(array, values), values, type=kind, mask=_missing(array))
        indexed = pa.types.is_dictionary(array.type)
        found = array.type.value_type if indexed else array.type
        if not any(of(found) and of(kind) for of in _CLASSES):
            raise BadValue(f"{path} cannot become {kind}: it is {array.type}")
        if _text(found):
            self._take(len(array) * _longest(array.dictionary) if indexed else int(_lengths(array).sum()))
        if indexed:
            array = array.dictionary_decode()
        try:
            return array.cast(kind, safe=True)
        except pa.ArrowException as error:
            raise BadValue(f"{path} cannot become {kind}: {reason(error)}") from None

    def _struct(self, array: pa.StructArray, kind: pa.StructType, path: str) -> pa.StructArray:
        names = [field.name for field in array.type]
        check_names(names, path)
        # Unlike the fields themselves, these are null where the struct is: what hides there must not fail.
        fields = dict(zip(names, array.flatten(), strict=True))
        columns = [
            self.array(fields[field.name], field.type, f"{path}.{field.name}")
            if field.name in fields
            else self._nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=_missing(array))

    def _map(self, array: pa.MapArray, kind: pa.MapType, path: str) -> pa.MapArray:
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        # Arrow has no functions for maps; a map is a list of pairs with the same buffers.
        array = pa.Array.from_buffers(
            pa.list_(pairs.type), len(array), array.buffers()[:2], offset=array.offset, children=[pairs]
        )
        pairs = array.flatten()
        keys = self.array(pairs.field(0), kind.key_type, f"{path} key")
        items = self.array(pairs.field(1), kind.item_type, f"{path}{{}}")
        offsets = _offsets(array, keys)
        _check_keys(keys, offsets, path)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=_missing(array))


def check_names(names: list[str], path: str) -> None:
    """Raises `BadValue` if two columns have one name."""
    for twice, other in pairwise(sorted(names)):
        if twice == other:
            raise BadValue(f"{path} has the field {twice[:80]!r} twice")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _missing(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array, values: pa.Array) -> pa.Int32Array:
    """Where each list begins in `values`, which has nothing of lists that are null."""
    lengths = pc.if_else(array.is_valid(), pc.list_value_length(array).cast(pa.int64()), 0).to_numpy(False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if ends[-1] != len(values):
        raise BadValue(f"a list has {len(values)} items, where its offsets say {ends[-1]}")
    return pa.array(ends.astype(np.int32))


def _check_keys(keys: pa.Array, offsets: pa.Int32Array, path: str) -> None:
    if keys.null_count:
        raise BadValue(f"a key of {path} is null")
    places = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets.to_numpy()))
    pairs = pa.table({"map": places, "key": keys})
    if pairs.group_by(["map", "key"], use_threads=False).aggregate([]).num_rows < len(keys):
        raise BadValue(f"{path} has a key twice")


def _longest(texts: pa.Array) -> int:
    return int(_lengths(texts).max(initial=0))


def _lengths(texts: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of each text or binary that is not null, in bytes."""
    if _view(texts.type):
        views = texts.buffers()[1]
        lengths = np.frombuffer(views, np.int32)[::4][texts.offset : texts.offset + len(texts)]
    elif pa.types.is_fixed_size_binary(texts.type):
        lengths = np.full(len(texts), texts.type.byte_width, np.int64)
    else:
        lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy(False)
    return np.where(texts.is_valid().to_numpy(False), lengths, 0).astype(np.int64)
