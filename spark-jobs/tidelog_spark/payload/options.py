"""The options of a payload, checked (pure): `valueFormat`, `valueSchema`, `badRecords`, `timestampUnit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark.sql.types import StructType

from tidelog.errors import InvalidRequest
from tidelog_spark.payload.decoded import Decoder
from tidelog_spark.payload.json_records import UNITS
from tidelog_spark.payload.json_values import JsonDecoder
from tidelog_spark.payload.types import arrow_type, parse_schema

NAMES: Final = ("valueFormat", "valueSchema", "badRecords", "timestampUnit")
FORMATS: Final = ("raw", "json")


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


def parse_payload(given: Mapping[str, str]) -> Payload | None:
    """The payload that the options in `given` ask for; None: values stay bytes.

    Names are compared without case, and options of others are left alone. Raises `InvalidRequest` with a
    sentence about the first value that is not allowed.
    """
    known = {name.lower(): name for name in NAMES}
    values = {known[name.lower()]: text for name, text in given.items() if name.lower() in known}
    if _choice(values, "valueFormat", FORMATS, "raw") == "raw":
        for name in values:
            if name != "valueFormat":
                raise InvalidRequest(
                    f"{name} has an effect only with valueFormat=json; give it, or remove {name}"
                )
        return None
    if "valueSchema" not in values:
        raise InvalidRequest(
            "valueFormat is 'json', but valueSchema is missing; give the fields, for example "
            "'id bigint, amount double'"
        )
    schema = parse_schema(values["valueSchema"])
    unit = _choice(values, "timestampUnit", tuple(UNITS), "s")
    mode = BadRecords(_choice(values, "badRecords", tuple(BadRecords), BadRecords.FAIL))
    return Payload(schema, JsonDecoder(arrow_type(schema), unit), mode)


def _choice(values: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    found = values.get(name, default).strip().lower()
    if found not in allowed:
        raise InvalidRequest(f"{name} is {values[name][:200]!r}; it must be one of {', '.join(allowed)}")
    return found
