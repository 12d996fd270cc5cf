"""The options of a payload, checked : `valueFormat` and the options that belong to it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark.sql.types import StructType

from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given
from tidelog_spark.payload.arrow_values import ArrowDecoder
from tidelog_spark.payload.decoded import Decoder, reason
from tidelog_spark.payload.json_records import UNITS
from tidelog_spark.payload.json_values import JsonDecoder
from tidelog_spark.payload.limits import DESCRIPTOR_BYTES_MAX, SCHEMA_CHARACTERS_MAX
from tidelog_spark.payload.protobuf_schema import parse_protobuf
from tidelog_spark.payload.protobuf_values import ProtobufDecoder
from tidelog_spark.payload.types import arrow_type, parse_schema

NAMES: Final = (
    "valueFormat",
    "valueSchema",
    "valueDescriptorFile",
    "valueMessage",
    "badRecords",
    "timestampUnit",
)
"""Without the first, none of them has an effect."""

FORMATS: Final = ("raw", "json", "avro", "protobuf", "arrow")

_SCHEMAS: Final = {
    "json": "the fields, for example 'id bigint, amount double'",
    "avro": "the writer's Avro schema as JSON",
    "protobuf": "the Base64 of a FileDescriptorSet, or valueDescriptorFile with the path of its file",
    "arrow": "the fields, for example 'id bigint, amount double'",
}
"""What `valueSchema` must have, for each format."""

_EFFECT: Final = {
    "timestampUnit": ("json",),
    "valueMessage": ("protobuf",),
    "valueDescriptorFile": ("protobuf",),
}
"""The formats with which an option has an effect; an option that is missing here: all but `raw`."""


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
    for name in NAMES[1:]:
        forms = _EFFECT.get(name, FORMATS[1:])
        if name in values and form not in forms:
            raise InvalidRequest(
                f"{name} has an effect only with valueFormat={_listed(forms)}; give it, or remove {name}"
            )
    if form == "raw":
        return None
    text = values.text("valueSchema")
    path = values.exact("valueDescriptorFile")
    if path is not None and text is not None:
        raise InvalidRequest("valueSchema and valueDescriptorFile are both given; remove one of them")
    if path is None and text is None:
        raise InvalidRequest(f"valueFormat is {form!r}, but valueSchema is missing; give {_SCHEMAS[form]}")
    modes = [mode.value for mode in BadRecords]
    mode = BadRecords(values.choice("badRecords", modes, default=BadRecords.FAIL.value))
    schema, decoder = _protobuf(values) if form == "protobuf" else _decoder(form, text or "", values)
    return Payload(schema, decoder, mode)


def _listed(forms: tuple[str, ...]) -> str:
    *first, last = forms
    return f"{', '.join(first)} or {last}" if first else last


def _decoder(form: str, text: str, values: Given) -> tuple[StructType, Decoder]:
    """The type of the column `value`, and what decodes it."""
    if form == "avro":
        # Only here: fastavro takes long to import, and every Python process of Spark would wait for it.
        from tidelog_spark.payload.avro_schema import parse_avro
        from tidelog_spark.payload.avro_values import AvroDecoder

        schema = parse_avro(text).type
        return schema, AvroDecoder(arrow_type(schema), text)
    schema = parse_schema(text)
    if form == "arrow":
        return schema, ArrowDecoder(arrow_type(schema))
    unit = values.choice("timestampUnit", tuple(UNITS), default="s")
    return schema, JsonDecoder(arrow_type(schema), unit)


def _protobuf(values: Given) -> tuple[StructType, Decoder]:
    message = values.text("valueMessage")
    if not message:
        raise InvalidRequest(
            "valueFormat is 'protobuf', but valueMessage is missing; give the full name of a message, such "
            "as shop.Order"
        )
    path = values.exact("valueDescriptorFile")
    descriptors = _decoded(values.text("valueSchema") or "") if path is None else _read(path)
    schema = parse_protobuf(descriptors, message).type
    return schema, ProtobufDecoder(arrow_type(schema), descriptors, message)


def _decoded(text: str) -> bytes:
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise InvalidRequest(
            f"valueSchema has {len(text)} characters; at most {SCHEMA_CHARACTERS_MAX} are read; put the "
            "descriptors into a file and give valueDescriptorFile"
        )
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequest(
            f"valueSchema is not Base64 ({reason(error)}); give the Base64 of a FileDescriptorSet, in one "
            "line"
        ) from None


def _read(path: str) -> bytes:
    """The descriptors in a file that the driver can read."""
    try:
        with open(path, "rb") as file:
            found = file.read(DESCRIPTOR_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"valueDescriptorFile is {path!r}, which the driver cannot read: {reason(error)}; give the path "
            "of a FileDescriptorSet on the driver"
        ) from None
    if len(found) > DESCRIPTOR_BYTES_MAX:
        raise InvalidRequest(
            f"valueDescriptorFile is {path!r}, which has more than {DESCRIPTOR_BYTES_MAX} bytes; write only "
            "the files that the message needs"
        )
    return found
