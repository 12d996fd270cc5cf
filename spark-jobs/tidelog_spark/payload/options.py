"""The options of a payload, checked (pure): `valueFormat`, `valueSchema`, `badRecords`, `timestampUnit`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark.sql.types import StructType

from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given
from tidelog_spark.payload.avro_schema import parse_avro
from tidelog_spark.payload.avro_values import AvroDecoder
from tidelog_spark.payload.decoded import Decoder
from tidelog_spark.payload.json_records import UNITS
from tidelog_spark.payload.json_values import JsonDecoder
from tidelog_spark.payload.types import arrow_type, parse_schema

NAMES: Final = ("valueFormat", "valueSchema", "badRecords", "timestampUnit")
"""All but the first have an effect only with a format other than `raw`."""

FORMATS: Final = ("raw", "json", "avro")

_SCHEMAS: Final = {
    "json": "the fields, for example 'id bigint, amount double'",
    "avro": "the writer's Avro schema as JSON",
}
"""What `valueSchema` must have, for each format."""


class BadRecords(StrEnum):
    """What happens to a record whose value cannot be decoded."""

    FAIL = "fail"
    """The query ends with an error that names the record. The default: nothing is lost unseen."""
    COLUMN = "column"
    """The payload is null, and the column `_bad_record` has the value and the reason."""
    DROP = "drop"
    """The record is left out, and a warning tells how many."""


@dataclass(frozen=True, slots=True)
class Payload:
    """How values are decoded. Picklable: tasks get it from the driver."""

    schema: StructType
    """The type of the column `value`."""
    decoder: Decoder
    bad_records: BadRecords

    @property
    def has_column(self) -> bool:
        """Whether rows have the column for bad records."""
        return self.bad_records is BadRecords.COLUMN


def parse_payload(values: Given) -> Payload | None:
    """The payload that the options ask for; None: values stay bytes.

    Raises `InvalidRequest` with a sentence about the first value that is not allowed.
    """
    form = values.choice("valueFormat", FORMATS, default="raw")
    if form != "json" and "timestampUnit" in values:
        raise InvalidRequest(
            "timestampUnit has an effect only with valueFormat=json; give it, or remove timestampUnit"
        )
    if form == "raw":
        for name in NAMES[1:]:
            if name in values:
                raise InvalidRequest(
                    f"{name} has an effect only with valueFormat=json or avro; give it, or remove {name}"
                )
        return None
    text = values.text("valueSchema")
    if text is None:
        raise InvalidRequest(f"valueFormat is {form!r}, but valueSchema is missing; give {_SCHEMAS[form]}")
    modes = [mode.value for mode in BadRecords]
    mode = BadRecords(values.choice("badRecords", modes, default=BadRecords.FAIL.value))
    schema, decoder = _decoder(form, text, values)
    return Payload(schema, decoder, mode)


def _decoder(form: str, text: str, values: Given) -> tuple[StructType, Decoder]:
    """The type of the column `value`, and what decodes it."""
    if form == "avro":
        schema = parse_avro(text).type
        return schema, AvroDecoder(arrow_type(schema), text)
    schema = parse_schema(text)
    unit = values.choice("timestampUnit", tuple(UNITS), default="s")
    return schema, JsonDecoder(arrow_type(schema), unit)
