"""The schema of a payload: Spark types, checked, and their Arrow types.

Every field is nullable, as in Spark's `from_json`: a value may lack it. `ddl` reads the text of a schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
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
from tidelog_spark.payload.ddl import parse_ddl
from tidelog_spark.payload.limits import DEPTH_MAX, FIELDS_MAX, SCHEMA_CHARACTERS_MAX

_SCALARS: Final = (
    BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType,
    StringType, BinaryType, DateType, TimestampType, TimestampNTZType,
)  # fmt: skip

Keys = tuple[type[DataType], ...]
KEYS_OF_PROTOBUF: Final[Keys] = (StringType, BooleanType, IntegerType, LongType)


def parse_schema(text: str) -> StructType:
    """The schema in `text`: DDL (`id bigint, price decimal(9,2)`) or the JSON of a Spark schema.

    Raises `InvalidRequest` if it is neither, or has types that no payload can have.
    """
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise InvalidRequest(
            f"valueSchema has {len(text)} characters; at most {SCHEMA_CHARACTERS_MAX} are read"
        )
    schema = _from_json(text) if text.lstrip().startswith("{") else parse_ddl(text)
    try:
        return checked(schema)
    except InvalidRequest as error:
        raise InvalidRequest(f"valueSchema: {error.message}") from None


def checked(schema: StructType, keys: Keys = (StringType,)) -> StructType:
    """The schema with every field nullable; raises `InvalidRequest` if a payload cannot have it.

    `keys`: the types that keys of a map may have.
    """
    if not schema.fields:
        raise InvalidRequest("the schema of the payload has no fields; give at least one")
    found = _nullable(schema, "value", 1, keys)
    assert isinstance(found, StructType)
    if (count := sum(1 for _ in _fields(found))) > FIELDS_MAX:
        raise InvalidRequest(f"the payload has {count} fields; at most {FIELDS_MAX} are allowed")
    return found


def arrow_type(schema: StructType) -> pa.StructType:
    """The Arrow type that Spark wants for a column of this struct."""
    whole = StructType([StructField("value", schema)])
    return to_arrow_schema(whole, timezone="UTC").field(0).type


def _from_json(text: str) -> StructType:
    try:
        return StructType.fromJson(json.loads(text))
    except Exception as error:
        # PySpark raises whatever its parser meets: KeyError, TypeError, ParseException and others.
        raise InvalidRequest(
            f"valueSchema begins with a brace, but is not the JSON of a Spark schema "
            f"({type(error).__name__}: {str(error)[:200]}); "
            f"give the text of df.schema.json(), or DDL such as 'id bigint, name string'"
        ) from None


def _nullable(kind: DataType, path: str, depth: int, keys: Keys) -> DataType:
    if depth > DEPTH_MAX:
        raise InvalidRequest(f"the schema of the payload is deeper than {DEPTH_MAX} levels")
    match kind:
        case StructType():
            names = kind.fieldNames()
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise InvalidRequest(f"{path} has the field {twice[0]!r} twice; names must differ")
            return StructType(
                [
                    StructField(
                        field.name, _nullable(field.dataType, f"{path}.{field.name}", depth + 1, keys)
                    )
                    for field in kind.fields
                ]
            )
        case ArrayType():
            return ArrayType(_nullable(kind.elementType, f"{path}[]", depth + 1, keys))
        case MapType():
            if not isinstance(kind.keyType, keys):
                found = kind.keyType.simpleString()
                raise InvalidRequest(
                    f"the keys of {path} are {found}; keys of a map must be "
                    f"{' or '.join(key.typeName() for key in keys)}"
                )
            return MapType(kind.keyType, _nullable(kind.valueType, f"{path}{{}}", depth + 1, keys))
        case _ if type(kind) in _SCALARS:
            return kind
    raise InvalidRequest(
        f"{path} is {kind.simpleString()}; a payload may have structs, arrays, maps and "
        f"{', '.join(scalar.typeName() for scalar in _SCALARS)}"
    )


def _fields(kind: DataType) -> Iterator[StructField]:
    match kind:
        case StructType():
            for field in kind.fields:
                yield field
                yield from _fields(field.dataType)
        case ArrayType():
            yield from _fields(kind.elementType)
        case MapType():
            yield from _fields(kind.valueType)
