"""Records as JSON objects, and back: `produce --format json` takes what `consume --format json` prints.

Bytes that are UTF-8 are written as text. Other bytes have a field of their own in base64 (``value_base64``,
``key_base64``), so that nothing is lost on the way.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Any, NamedTuple

from tidelog.cli.values import show_time_us
from tidelog.errors import InvalidRequest
from tidelog.model import Headers, Record

FIELDS = (
    "stream",
    "partition",
    "offset",
    "leader_epoch",
    "append_time",
    "timestamp",
    "subject",
    "key",
    "value",
    "headers",
)


class GivenRecord(NamedTuple):
    """One record of the input."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    subject: str | None
    timestamp: datetime | None
    partition: int | None
    """From the option only, never from a line: the target stream may have other partitions."""


def to_json(record: Record) -> dict[str, Any]:
    """The record's fields. Fields that it does not have are left out, except the value."""
    found: dict[str, Any] = {
        "stream": record.stream,
        "partition": record.partition,
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "timestamp": show_time_us(record.timestamp_us),
        "append_time": show_time_us(record.append_time_us),
    }
    if record.subject is not None:
        found["subject"] = record.subject
    if record.key is not None:
        _put(found, "key", record.key)
    _put(found, "value", record.value)
    if record.headers:
        found["headers"] = [_header(name, value) for name, value in record.headers]
    return found


def from_json(line: str) -> GivenRecord:
    """A record from a line of JSON. Raises `InvalidRequest`, which says what would be right."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InvalidRequest(f"not JSON ({error}): {line[:60]!r}") from None
    if not isinstance(found, dict):
        raise InvalidRequest(f'a record is an object like {{"value": "text"}}, not {line[:60]!r}')
    unknown = [name for name in found if name.removesuffix("_base64") not in FIELDS]
    if unknown:
        raise InvalidRequest(
            f"a record has no field {unknown[0]!r}; it has key, value, headers, subject, timestamp"
        )
    if "value" not in found and "value_base64" not in found:
        raise InvalidRequest("the record has no value; null makes it a tombstone")
    if "value" in found and "value_base64" in found:
        raise InvalidRequest("the record has a value and a value_base64; give only one of them")
    return GivenRecord(
        value=_bytes(found, "value"),
        key=_bytes(found, "key"),
        headers=_headers(found.get("headers")),
        subject=_text(found, "subject"),
        timestamp=_timestamp(found.get("timestamp")),
        partition=None,
    )


def _put(found: dict[str, Any], name: str, value: bytes | None) -> None:
    try:
        found[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = base64.b64encode(value or b"").decode()


def _header(name: str, value: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    _put(found, "value", value)
    return found


def _bytes(found: dict[str, Any], name: str) -> bytes | None:
    encoded = found.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise InvalidRequest(f"{name}_base64 is not base64: {encoded!r:.60}") from None
    value = found.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _text(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{name} is {value!r}; it must be text")
    return value


def _headers(found: object) -> Headers:
    if found is None:
        return ()
    if isinstance(found, dict):
        found = [{"name": name, "value": value} for name, value in found.items()]
    if not isinstance(found, list) or not all(
        isinstance(item, dict) and isinstance(item.get("name"), str) for item in found
    ):
        raise InvalidRequest('headers are {"name": "value"} or [{"name": "n", "value": "v"}]')
    return tuple((item["name"], _bytes(item, "value")) for item in found)


def _timestamp(found: object) -> datetime | None:
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found) if isinstance(found, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidRequest(f"timestamp is {found!r}; write it like 2026-01-31T12:00:00Z")
    return moment
