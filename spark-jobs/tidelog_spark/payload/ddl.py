"""Reads the DDL of a schema (`id bigint, tags array<string>`) without a Spark session.

PySpark has Java parse DDL, but the planner's Python worker has no way to Java.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.errors import InvalidRequest
from tidelog_spark.payload.limits import DEPTH_MAX

_SCALARS: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "byte": ByteType(), "tinyint": ByteType(),
    "short": ShortType(), "smallint": ShortType(),
    "int": IntegerType(), "integer": IntegerType(),
    "long": LongType(), "bigint": LongType(),
    "float": FloatType(), "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(), "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}  # fmt: skip

_DECIMALS: Final = ("decimal", "dec", "numeric")
_PRECISION_MAX: Final = 38

_TOKEN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>\w+)|(?P<sign>[<>(),:]))",
    re.ASCII,
)


def parse_ddl(text: str) -> StructType:
    """The fields in `text`, also in the form `struct<…>`; raises `InvalidRequest`."""
    return _Parser(text).schema()


class _Parser:
    """A recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self._next = 0
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                self._wrong(place)
            kind = str(found.lastgroup)
            self._tokens.append((kind, found[kind], found.start(kind)))
            place = found.end()
        self._tokens.append(("end", "", end))

    def schema(self) -> StructType:
        if self._looks_like("struct") and self._tokens[1][1] == "<":
            found = self._type(1)
            assert isinstance(found, StructType)
        else:
            found = StructType(self._fields(1))
        if self._tokens[self._next][0] != "end":
            self._wrong()
        return found

    def _fields(self, depth: int) -> list[StructField]:
        found = [self._field(depth)]
        while self._take(","):
            found.append(self._field(depth))
        return found

    def _field(self, depth: int) -> StructField:
        kind, name, _ = self._tokens[self._next]
        if kind not in ("word", "quoted"):
            self._wrong()
        self._next += 1
        self._take(":")
        data_type = self._type(depth + 1)
        nullable = True
        if self._looks_like("not"):
            self._next += 1
            if not self._looks_like("null"):
                self._wrong()
            self._next += 1
            nullable = False
        if self._looks_like("comment"):
            self._next += 1
            if self._tokens[self._next][0] != "text":
                self._wrong()
            self._next += 1
        return StructField(name.replace("``", "`") if kind == "quoted" else name, data_type, nullable)

    def _type(self, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise InvalidRequest(f"the schema of the payload is deeper than {DEPTH_MAX} levels")
        kind, word, place = self._tokens[self._next]
        name = word.lower()
        if kind != "word":
            self._wrong()
        self._next += 1
        if name in _SCALARS:
            return _SCALARS[name]
        if name in _DECIMALS:
            return self._decimal()
        if name not in ("array", "map", "struct"):
            self._wrong(place)
        self._expect("<")
        found: DataType
        if name == "array":
            found = ArrayType(self._type(depth + 1))
        elif name == "map":
            keys = self._type(depth + 1)
            self._expect(",")
            found = MapType(keys, self._type(depth + 1))
        else:
            found = StructType(self._fields(depth))
        self._expect(">")
        return found

    def _decimal(self) -> DecimalType:
        if not self._take("("):
            return DecimalType(10, 0)
        place = self._tokens[self._next][2]
        precision, scale = self._number(), 0
        if self._take(","):
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= _PRECISION_MAX or scale > precision:
            self._wrong(place)
        return DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._tokens[self._next][1]
        if not word.isdigit() or len(word) > 2:
            self._wrong()
        self._next += 1
        return int(word)

    def _looks_like(self, word: str) -> bool:
        kind, found, _ = self._tokens[self._next]
        return kind == "word" and found.lower() == word

    def _take(self, sign: str) -> bool:
        kind, found, _ = self._tokens[self._next]
        if kind != "sign" or found != sign:
            return False
        self._next += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            self._wrong()

    def _wrong(self, place: int | None = None) -> NoReturn:
        at = self._tokens[self._next][2] if place is None else place
        near = self._text[at : at + 40].strip()
        where = f"near {near!r}" if near else "at its end"
        raise InvalidRequest(
            f"valueSchema cannot be read {where} (character {at + 1}); it must be DDL such as "
            "'id bigint, price decimal(9,2), tags array<string>', or the JSON of a Spark schema. Names with "
            "other characters than letters, digits and _ stand in backquotes"
        )
