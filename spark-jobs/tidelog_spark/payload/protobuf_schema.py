"""The schema of protobuf values: what Spark's `from_protobuf` makes of each type, and how a message is read.

The types are those of Spark's defaults. Missing fields are as with Spark's option to emit defaults: a field
without presence (a plain scalar of proto3) has its default if the value lacks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import InvalidRequest
from tidelog_spark.payload.decoded import BadValue, reason
from tidelog_spark.payload.limits import DEPTH_MAX, FIELDS_MAX
from tidelog_spark.payload.protobuf_scan import Scan, scanner
from tidelog_spark.payload.types import KEYS_OF_PROTOBUF, checked

Convert = Callable[[Any], Any]

_TYPES: Final[dict[int, tuple[DataType, Convert | None]]] = {
    FieldDescriptor.CPPTYPE_BOOL: (BooleanType(), None),
    FieldDescriptor.CPPTYPE_INT32: (IntegerType(), None),
    FieldDescriptor.CPPTYPE_INT64: (LongType(), None),
    FieldDescriptor.CPPTYPE_UINT32: (IntegerType(), lambda n: n - (n >> 31 << 32)),
    FieldDescriptor.CPPTYPE_UINT64: (LongType(), lambda n: n - (n >> 63 << 64)),
    FieldDescriptor.CPPTYPE_FLOAT: (FloatType(), None),
    FieldDescriptor.CPPTYPE_DOUBLE: (DoubleType(), None),
}
"""Scalars by the kind of their value in Python; unsigned numbers become signed ones of the same bits."""

_TIMESTAMP: Final = "google.protobuf.Timestamp"


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A message type that is ready to read with."""

    type: StructType
    """Of the column `value`."""
    scan: Scan
    """What a value would take; it comes before `read`."""
    message: Any
    """The class. Its methods are called through it: in a message, a field may have the name of a method."""
    convert: Convert

    def read(self, value: bytes) -> Any:
        """One record for an Arrow array; raises `BadValue`."""
        try:
            found = self.message.FromString(value)
            if not self.message.IsInitialized(found):
                missing = ", ".join(self.message.FindInitializationErrors(found))
                raise BadValue(f"the value lacks the required fields {missing}")
            return self.convert(found)
        except (DecodeError, UnicodeDecodeError) as error:
            raise BadValue(f"the value is not a message of this type: {reason(error)}") from None


@lru_cache(maxsize=16)
def parse_protobuf(descriptors: bytes, name: str) -> ProtobufSchema:
    """The message `name` of a serialized `FileDescriptorSet`; raises `InvalidRequest`."""
    descriptor = _descriptor(descriptors, name)
    try:
        read = _Reading().message(descriptor, "value", 1)
        if read is None:
            raise InvalidRequest(f"the message {name} has no fields; a column must have fields")
        kind = checked(read[0], keys=KEYS_OF_PROTOBUF)
    except InvalidRequest as error:
        raise InvalidRequest(f"valueMessage: {error.message}") from None
    message = message_factory.GetMessageClass(descriptor)
    return ProtobufSchema(kind, scanner(descriptor), message, read[1])


def _descriptor(descriptors: bytes, name: str) -> Descriptor:
    try:
        files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file}
    except DecodeError:
        files = {}
    if not files:
        raise InvalidRequest(
            "the descriptors are not a FileDescriptorSet; protoc writes it with --include_imports "
            "--descriptor_set_out=FILE"
        )
    pool = descriptor_pool.DescriptorPool()
    missing = {
        wanted for file in files.values() for wanted in file.dependency if wanted not in files
    }  # fmt: skip
    if missing:
        raise InvalidRequest(
            f"the FileDescriptorSet lacks the file {min(missing)!r}, which another file imports; run protoc "
            "with --include_imports"
        )
    # A file must follow the files that it imports.
    while ready := [f for f in files.values() if not any(wanted in files for wanted in f.dependency)]:
        for file in ready:
            del files[file.name]
            try:
                pool.Add(file)
                pool.FindFileByName(file.name)
            except Exception as error:
                # The pool raises TypeError, KeyError and others.
                raise InvalidRequest(
                    f"the descriptor of {file.name!r} is not valid: {reason(error)}"
                ) from None
    if files:
        raise InvalidRequest(f"the file {min(files)!r} of the FileDescriptorSet imports itself")
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise InvalidRequest(
            f"valueMessage is {name!r}, which the FileDescriptorSet does not have; give the full name of a "
            "message, such as shop.Order"
        ) from None


class _Reading:
    """One walk over a message type."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._count = 0

    def message(self, descriptor: Descriptor, path: str, depth: int) -> tuple[StructType, Convert] | None:
        """The struct of a message, and what makes it; None: no field is left, so there is no column."""
        name = descriptor.full_name
        if name in self._open:
            raise InvalidRequest(f"{path} contains the message {name} in itself; a column cannot")
        if depth > DEPTH_MAX:
            raise InvalidRequest(f"the message is deeper than {DEPTH_MAX} levels")
        self._open.append(name)
        fields, getters = [], []
        for field in descriptor.fields:
            self._count += 1
            if self._count > FIELDS_MAX:
                raise InvalidRequest(f"the message has more than {FIELDS_MAX} fields")
            found = self._field(field, f"{path}.{field.name}", depth)
            if found is not None:
                fields.append(StructField(field.name, found[0]))
                getters.append((field.name, field.has_presence and not field.has_default_value, found[1]))
        self._open.pop()
        return (StructType(fields), _struct(getters)) if fields else None

    def _field(self, field: FieldDescriptor, path: str, depth: int) -> tuple[DataType, Convert | None] | None:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            parts = entry.fields_by_name
            key, value = self._one(parts["key"], path, depth), self._one(parts["value"], path, depth)
            return (
                None if key is None or value is None else (MapType(key[0], value[0]), _map(key[1], value[1]))
            )
        one = self._one(field, path, depth)
        if one is None or not field.is_repeated:
            return one
        return ArrayType(one[0]), _list(one[1])

    def _one(self, field: FieldDescriptor, path: str, depth: int) -> tuple[DataType, Convert | None] | None:
        if field.message_type is not None:
            if field.message_type.full_name == _TIMESTAMP:
                return TimestampType(), _micros
            return self.message(field.message_type, path, depth + 1)
        if field.enum_type is not None:
            return StringType(), _symbol(field.enum_type)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return BinaryType(), None
        return (StringType(), None) if field.type == FieldDescriptor.TYPE_STRING else _TYPES[field.cpp_type]


def _struct(getters: Sequence[tuple[str, bool, Convert | None]]) -> Convert:
    def convert(message: Any) -> dict[str, Any]:
        record = {}
        has = type(message).HasField
        for name, nullable, change in getters:
            if nullable and not has(message, name):
                continue
            found = getattr(message, name)
            record[name] = found if change is None else change(found)
        return record

    return convert


def _list(change: Convert | None) -> Convert:
    return list if change is None else lambda items: [change(item) for item in items]


def _map(key: Convert | None, value: Convert | None) -> Convert:
    def convert(entries: Any) -> list[tuple[Any, Any]]:
        return [
            (name if key is None else key(name), item if value is None else value(item))
            for name, item in entries.items()
        ]

    return convert


def _micros(message: Any) -> int:
    return int(message.seconds * 1_000_000 + message.nanos // 1000)


def _symbol(enum: EnumDescriptor) -> Convert:
    names = {number: found.name for number, found in enum.values_by_number.items()}
    return lambda number: names.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"
