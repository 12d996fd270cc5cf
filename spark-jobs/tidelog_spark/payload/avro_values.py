"""Decodes Avro values: each value is one datum of the writer's schema, without a header.

`avro_scan` checks a datum before `avro_schema` makes a row of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidelog_spark.payload.avro_schema import parse_avro
from tidelog_spark.payload.decoded import Decoded, from_values


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """Decodes data of the Avro schema in `text` to the fields of `type`."""

    type: pa.StructType
    text: str
    """The JSON of the schema. Each worker parses it once: closures cannot be pickled."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        schema = parse_avro(self.text)
        return from_values(values, self.type, schema.scan, schema.read)
