"""The folder of each row, by the time of its record and by the values of columns. Pure.

Folders have Hive's names (``date=2026-11-21/hour=07/region=eu``), which Spark, DuckDB, Trino and pyarrow
turn into columns again. Days and hours are those of the record's timestamp in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import InvalidRequest

TIME_COLUMN: Final = "timestamp"
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's folder name for rows without a value."""

SHOWN_MAX: Final = 40
"""Characters of a value in an error."""

_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
"""What Hive and Spark escape in the names of folders."""


class Time(StrEnum):
    """The folders by time."""

    NONE = "none"
    DAY = "day"
    """``date=2026-11-21/``"""
    HOUR = "hour"
    """``date=2026-11-21/hour=07/``"""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """What the folder of a row depends on."""

    time: Time = Time.NONE
    columns: tuple[str, ...] = ()
    time_column: str = TIME_COLUMN
    """The column with the record's timestamp."""

    def __bool__(self) -> bool:
        return self.time is not Time.NONE or bool(self.columns)

    def __str__(self) -> str:
        parts = [] if self.time is Time.NONE else [self.time.value]
        return ", ".join([*parts, *self.columns]) or "nothing"

    def check(self, schema: pa.Schema) -> None:
        """Raises `InvalidRequest` unless rows of this schema can be partitioned so."""
        if self.time is not Time.NONE and self.time_column not in schema.names:
            raise InvalidRequest(
                f"the rows have no column {self.time_column}, so partitionBy.time must be none; "
                f"they have {', '.join(schema.names)}"
            )
        for name in self.columns:
            if name not in schema.names:
                raise InvalidRequest(
                    f"the rows have no column {name!r} to partition by; they have {', '.join(schema.names)}"
                )
            if not _can_name_folders(schema.field(name).type):
                raise InvalidRequest(
                    f"the column {name} is {schema.field(name).type}, and only columns of text, whole "
                    f"numbers and booleans can be in partitionBy.columns"
                )
        if len(self.columns) == len(schema.names):
            raise InvalidRequest("partitionBy.columns has every column, so nothing is left for the files")

    def check_folders(self, schema: pa.Schema) -> None:
        """Raises `InvalidRequest` if a column has the name of a folder by time, which would hide it."""
        for name in schema.names:
            if name.casefold() in _TIME_FOLDERS[self.time]:
                raise InvalidRequest(
                    f"the column {name} has the name of the folders {name.casefold()}=… that "
                    f"partitionBy.time makes, and readers would find the day or hour of the folder in it. "
                    f"Leave the field out with value.schema, set partitionBy.time to none, or write to an "
                    f"Iceberg table"
                )


_TIME_FOLDERS: Final = {Time.NONE: (), Time.DAY: ("date",), Time.HOUR: ("date", "hour")}


def _can_name_folders(type_: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean)
    return any(check(type_) for check in checks)


Key = tuple[Any, ...]
"""The values that a partitioning asks for, in its order: the hour or day since 1970 first, if by time."""


def split(rows: pa.RecordBatch, by: Partitioning) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """The rows of each key; rows of one key keep their order."""
    if not rows.num_rows:
        return
    keys = list(_key_columns(rows, by))
    if not keys:
        yield (), rows
        return
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for column in keys:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes * len(encoded.dictionary) + indices, return_inverse=True)
    if not codes.any():
        yield _key_at(keys, 0), rows
        return
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    ordered = rows.take(pa.array(order))
    for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), rows.num_rows], strict=True):
        yield _key_at(keys, int(order[begin])), ordered.slice(begin, end - begin)


def _key_columns(rows: pa.RecordBatch, by: Partitioning) -> Iterator[pa.Array]:
    if by.time is not Time.NONE:
        micros = rows.column(by.time_column).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        yield pa.array(np.floor_divide(micros, _MICROS[by.time]))
    for name in by.columns:
        yield rows.column(name)


_MICROS: Final = {Time.DAY: 86_400_000_000, Time.HOUR: 3_600_000_000}


def _key_at(columns: list[pa.Array], row: int) -> Key:
    return tuple(column[row].as_py() for column in columns)


def folder_of(key: Key, by: Partitioning) -> str:
    """The folder of the rows with this key, relative to the lake; "" for the lake itself."""
    parts: list[str] = []
    values = list(key)
    if by.time is not Time.NONE:
        at = np.datetime64(values.pop(0), "h" if by.time is Time.HOUR else "D").astype("datetime64[h]").item()
        parts.append(f"date={at:%Y-%m-%d}")
        if by.time is Time.HOUR:
            # Two digits, so that folders sort like the hours.
            parts.append(f"hour={at:%H}")
    parts += [_part(name, value) for name, value in zip(by.columns, values, strict=True)]
    return "/".join(parts)


def longest_part(key: Key, by: Partitioning) -> str:
    """The column with the longest folder name of this key, and the begin of its value, for people."""
    columns = list(zip(reversed(by.columns), reversed(key), strict=False))
    if not columns:
        return "the time"
    name, value = max(columns, key=lambda column: len(_part(*column).encode()))
    text = _text(value)
    return f"{name}={text[:SHOWN_MAX]}…" if len(text) > SHOWN_MAX else f"{name}={text}"


def _part(name: str, value: object) -> str:
    return f"{_escaped(name)}={_text(value)}"


def _text(value: object) -> str:
    # Hive has one folder for both, as Spark does.
    if value is None or value == "":
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    return _escaped(str(value))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
