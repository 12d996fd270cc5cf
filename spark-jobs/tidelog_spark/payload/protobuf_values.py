"""Decodes protobuf values: each value is one message, without a header.

`protobuf_scan` bounds a message before `protobuf_schema` makes a row of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidelog_spark.payload.decoded import Decoded, from_values
from tidelog_spark.payload.protobuf_schema import parse_protobuf


@dataclass(frozen=True, slots=True)
class ProtobufDecoder:
    """Decodes messages of the type `message` to the fields of `type`."""

    type: pa.StructType
    descriptors: bytes
    """A serialized `FileDescriptorSet`. Each worker builds its pool once: classes cannot be pickled."""
    message: str

    def decode(self, values: pa.BinaryArray) -> Decoded:
        schema = parse_protobuf(self.descriptors, self.message)
        return from_values(values, self.type, schema.scan, schema.read)
