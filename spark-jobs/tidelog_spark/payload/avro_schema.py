"""The schema of Avro values: what Spark's `from_avro` makes of each type, and how a datum is read.

fastavro reads a plain form of the schema: without logical types and with enums as their numbers. `convert`
then makes the value of the column. So no value is rounded, and no negative number of a symbol counts
from the end of the list. `avro_scan` has checked the value before.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import fastavro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.errors import InvalidRequest
from tidelog_spark.payload.avro_scan import Scan, scanner
from tidelog_spark.payload.decoded import BadValue, reason
from tidelog_spark.payload.limits import DEPTH_MAX, FIELDS_MAX, SCHEMA_CHARACTERS_MAX
from tidelog_spark.payload.types import checked

Convert = Callable[[Any], Any]

_SCALARS: Final[dict[str, DataType]] = {
    "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "string": StringType(), "bytes": BinaryType(),
}  # fmt: skip

_LOGICAL: Final[dict[tuple[str, str], tuple[DataType, Convert | None]]] = {
    ("int", "date"): (DateType(), None),
    ("long", "timestamp-millis"): (TimestampType(), lambda value: value * 1000),
    ("long", "timestamp-micros"): (TimestampType(), None),
    ("long", "local-timestamp-millis"): (TimestampNTZType(), lambda value: value * 1000),
    ("long", "local-timestamp-micros"): (TimestampNTZType(), None),
}
"""Other logical types are ignored: the column has the type below them, as in Spark."""

_PRECISION_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that is ready to read with."""

    type: StructType
    """Of the column `value`."""
    plain: Any
    """What fastavro reads."""
    convert: Convert | None
    """From the datum that fastavro read to a value for Arrow; None: it is the same."""
    scan: Scan
    """Checks a value and tells what it would take; it comes before `read`."""

    def read(self, value: bytes) -> Any:
        """One record for an Arrow array; raises `BadValue`."""
        try:
            record = fastavro.schemaless_reader(io.BytesIO(value), self.plain, None)
        except (LookupError, ValueError, OverflowError, EOFError) as error:
            raise BadValue(f"the value is not Avro of this schema: {reason(error)}") from None
        return record if self.convert is None else self.convert(record)


@lru_cache(maxsize=16)
def parse_avro(text: str) -> AvroSchema:
    """The schema in `text`, the JSON of an Avro record; raises `InvalidRequest`."""
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise InvalidRequest(
            f"valueSchema has {len(text)} characters; at most {SCHEMA_CHARACTERS_MAX} are read"
        )
    try:
        parsed = fastavro.parse_schema(json.loads(text))
        if not isinstance(parsed, dict) or parsed["type"] != "record":
            raise InvalidRequest("valueSchema is not an Avro record; the outermost type must be a record")
        kind, plain, convert = _Reading().read(parsed, "value", 1)
        assert isinstance(kind, StructType)
        return AvroSchema(checked(kind), fastavro.parse_schema(plain), convert, scanner(plain))
    except InvalidRequest:
        raise
    except Exception as error:
        # fastavro raises KeyError, TypeError and others besides its own errors, and JSON may be too deep.
        raise InvalidRequest(
            f"valueSchema is not an Avro schema ({type(error).__name__}: {str(error)[:200]}); give the JSON "
            'of a record, such as {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
        ) from None


class _Reading:
    """One walk over a schema. Each use of a named type is read again, under a name of its own."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []
        self._count = 0

    def read(self, schema: Any, path: str, depth: int) -> tuple[DataType, Any, Convert | None]:
        self._count += 1
        if depth > DEPTH_MAX or self._count > 4 * FIELDS_MAX:
            raise InvalidRequest(
                f"the Avro schema has more than {DEPTH_MAX} levels, or more than {4 * FIELDS_MAX} types"
            )
        if isinstance(schema, list):
            return self._union(schema, path, depth)
        if isinstance(schema, str):
            if schema not in self._named:
                return self._scalar({"type": schema}, path)
            schema = self._named[schema]
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            self._named[schema["name"]] = schema
        match kind:
            case "record" | "error":
                return self._record(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
            case "map":
                return self._map(schema, path, depth)
            case "enum":
                return StringType(), "int", _symbol(schema["symbols"], path)
        return self._scalar(schema, path) if isinstance(kind, str) else self.read(kind, path, depth + 1)

    def _record(self, schema: Any, path: str, depth: int) -> tuple[DataType, Any, Convert | None]:
        name = schema["name"]
        if name in self._open:
            raise InvalidRequest(f"{path} contains the Avro record {name} in itself; a column cannot")
        if not schema["fields"]:
            raise InvalidRequest(f"{path} is an Avro record without fields; a column must have fields")
        self._open.append(name)
        label = f"r{self._count}"
        fields, plain, converts = [], [], {}
        for field in schema["fields"]:
            kind, inner, convert = self.read(field["type"], f"{path}.{field['name']}", depth + 1)
            fields.append(StructField(field["name"], kind))
            plain.append({"name": field["name"], "type": inner})
            if convert is not None:
                converts[field["name"]] = convert
        self._open.pop()

        def converted(record: dict[str, Any]) -> dict[str, Any]:
            for key, change in converts.items():
                record[key] = change(record[key])
            return record

        found = {"type": "record", "name": label, "fields": plain}
        return StructType(fields), found, converted if converts else None

    def _array(self, schema: Any, path: str, depth: int) -> tuple[DataType, Any, Convert | None]:
        kind, plain, convert = self.read(schema["items"], f"{path}[]", depth + 1)
        change = None if convert is None else lambda items: [convert(item) for item in items]
        return ArrayType(kind), {"type": "array", "items": plain}, change

    def _map(self, schema: Any, path: str, depth: int) -> tuple[DataType, Any, Convert | None]:
        kind, plain, convert = self.read(schema["values"], f"{path}{{}}", depth + 1)

        def pairs(found: dict[str, Any]) -> list[tuple[str, Any]]:
            if convert is None:
                return list(found.items())
            return [(key, convert(item)) for key, item in found.items()]

        return MapType(StringType(), kind), {"type": "map", "values": plain}, pairs

    def _union(self, schema: list[Any], path: str, depth: int) -> tuple[DataType, Any, Convert | None]:
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1:
            raise InvalidRequest(
                f"{path} is a union of {len(schema)} Avro types; only a union of null and one other type "
                "can be a column"
            )
        kind, plain, convert = self.read(others[0], path, depth + 1)
        change = None if convert is None else lambda value: None if value is None else convert(value)
        return kind, ["null" if branch == "null" else plain for branch in schema], change

    def _scalar(self, schema: Any, path: str) -> tuple[DataType, Any, Convert | None]:
        kind, logical = schema["type"], schema.get("logicalType")
        plain = kind
        if kind == "fixed":
            if not schema["size"]:
                raise InvalidRequest(f"{path} is an Avro fixed of 0 bytes; its size must be at least 1")
            plain = {"type": "fixed", "name": f"r{self._count}", "size": schema["size"]}
        if logical == "decimal" and kind in ("fixed", "bytes"):
            return _decimal(schema, path, plain)
        if (kind, logical) in _LOGICAL:
            found, convert = _LOGICAL[kind, logical]
            return found, plain, convert
        if kind != "fixed" and kind not in _SCALARS:
            raise InvalidRequest(f"{path} is the Avro type {kind!r}, which cannot be a column")
        return _SCALARS.get(kind, BinaryType()), plain, None


def _symbol(symbols: list[str], path: str) -> Convert:
    def convert(number: int) -> str:
        if not 0 <= number < len(symbols):
            raise BadValue(f"{path} is symbol {number} of an enum with {len(symbols)} symbols")
        return symbols[number]

    return convert


def _decimal(schema: Any, path: str, plain: Any) -> tuple[DataType, Any, Convert | None]:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    whole = type(precision) is int and type(scale) is int
    if not whole or not 1 <= precision <= _PRECISION_MAX or not 0 <= scale <= precision:
        raise InvalidRequest(
            f"{path} is an Avro decimal of precision {precision!r} and scale {scale!r}; the precision must "
            f"be 1 to {_PRECISION_MAX}, and the scale 0 to the precision"
        )
    bound = 10**precision

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not -bound < number < bound:
            raise BadValue(f"{path} has more than {precision} digits")
        # A tuple keeps all digits; arithmetic would round to the digits of the context.
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return DecimalType(precision, scale), plain, convert
