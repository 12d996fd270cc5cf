"""Decodes one JSON value: the rules that `json_values` follows, which is only faster.

The rules are those of Spark's `from_json`, except where docs/spark.md says otherwise.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final

import pyarrow as pa

from tidelog_spark.payload.decoded import BadValue, reason
from tidelog_spark.payload.limits import CELL_BYTES, DECODED_BYTES_MAX, DEPTH_MAX

BLANKS: Final = b" \t\r\n"
UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""The units of a timestamp that is a number, in microseconds."""

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_FRACTION = re.compile(r"(\.\d{6})\d+", re.ASCII)
_FLOATS: Final = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}


class _Number(str):
    """The text of a number: a decimal or a string keeps all its digits."""

    __slots__ = ()


def read_record(value: bytes, kind: pa.StructType, unit: str) -> dict[str, Any]:
    """The fields of one JSON object, as Python values for an Arrow array of `kind`; raises `BadValue`."""
    if not value.strip(BLANKS):
        raise BadValue("the value is empty; it must be a JSON object")
    if depth(value) > DEPTH_MAX:
        raise BadValue(f"the value is deeper than {DEPTH_MAX} levels")
    if value.count(b"{") * width(kind) * CELL_BYTES > DECODED_BYTES_MAX:
        raise BadValue(f"the value could become more than {DECODED_BYTES_MAX} bytes")
    try:
        found = json.loads(value.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except UnicodeDecodeError as error:
        raise BadValue(f"the value is not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise BadValue(f"the value is not JSON: {reason(error)}") from None
    if not isinstance(found, dict):
        raise BadValue(f"the value is {_name(found)}; it must be a JSON object")
    record: dict[str, Any] = _convert(found, kind, "value", UNITS[unit])
    return record


def depth(value: bytes) -> int:
    """How deep the objects and lists of a JSON text lie in each other."""
    if value.count(b"{") + value.count(b"[") <= DEPTH_MAX:
        return 0
    deepest = now = 0
    for token in _TOKENS.findall(value):
        if token in (b"{", b"["):
            now += 1
            deepest = max(deepest, now)
        elif token in (b"}", b"]"):
            now -= 1
    return deepest


def width(kind: pa.DataType) -> int:
    """The cells that the shortest object, `{}`, makes in the columns of the schema."""
    if pa.types.is_struct(kind):
        return 1 + sum(width(field.type) for field in kind)
    if pa.types.is_map(kind):
        return max(1, width(kind.item_type))
    return max(1, width(kind.value_type)) if pa.types.is_list(kind) else 1


def _convert(value: Any, kind: pa.DataType, path: str, unit_us: int) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind) and type(value) is dict:
        return {
            field.name: _convert(value.get(field.name), field.type, f"{path}.{field.name}", unit_us)
            for field in kind
        }
    if pa.types.is_map(kind) and type(value) is dict:
        return [
            (_text(key, path), _convert(item, kind.item_type, f"{path}.{key}", unit_us))
            for key, item in value.items()
        ]
    if pa.types.is_list(kind) and type(value) is list:
        return [_convert(item, kind.value_type, f"{path}[]", unit_us) for item in value]
    if pa.types.is_string(kind):
        return _text(value if isinstance(value, str) else _rendered(value), path)
    try:
        return _scalar(value, kind, unit_us)
    except (ValueError, OverflowError, InvalidOperation):
        raise BadValue(f"{path} is {_name(value)}; it must be {kind}") from None


def _scalar(value: Any, kind: pa.DataType, unit_us: int) -> Any:
    """A scalar but a string; raises `ValueError` and others if it does not fit."""
    number, text = type(value) is _Number, type(value) is str
    if pa.types.is_boolean(kind) and type(value) is bool:
        return value
    if pa.types.is_integer(kind) and number:
        return _integer(value, kind.bit_width)
    if pa.types.is_floating(kind) and (number or text):
        found = float(_FLOATS[value]) if value in _FLOATS else _plain_float(value, number)
        return pa.scalar(str(value)).cast(kind).as_py() if _narrow(found, kind) else found
    if pa.types.is_decimal(kind) and (number or text):
        return _decimal(value, kind)
    if pa.types.is_date(kind) and text and _DATE.fullmatch(value):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(kind) and text:
        return _timestamp(value)
    if pa.types.is_timestamp(kind) and number:
        return _integer(str(_integer(value, 64) * unit_us), 64)
    if pa.types.is_binary(kind) and text:
        return base64.b64decode(value, validate=True)
    raise ValueError


def _plain_float(value: str, number: bool) -> float:
    if not number:
        raise ValueError
    return float(value)


def _narrow(found: float, kind: pa.DataType) -> bool:
    """Whether a float32 must be made from the text: rounding twice may give another number."""
    return bool(kind.bit_width == 32) and found - found == 0


def _integer(text: str, bits: int) -> int:
    if len(text) > 20:
        raise ValueError
    found = int(text)
    if not -(1 << bits - 1) <= found < 1 << bits - 1:
        raise ValueError
    return found


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    with localcontext(prec=kind.precision, rounding=ROUND_HALF_UP):
        return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale))


def _timestamp(text: str) -> int:
    """Microseconds; a time without a zone is in UTC, and digits behind the microsecond are cut off."""
    plain = pa.scalar(_FRACTION.sub(r"\1", text))
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return int(plain.cast(kind).value)
        except pa.ArrowInvalid:
            continue
    raise ValueError


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadValue(f"{path} has half of a surrogate pair, which no text can have") from None
    return str(value)


def _rendered(value: Any) -> str:
    """The JSON of a value that a string column takes, as Spark does; numbers keep their digits."""
    match value:
        case _Number():
            return str(value)
        case dict():
            return (
                "{"
                + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_rendered(v)}" for k, v in value.items())
                + "}"
            )
        case list():
            return "[" + ",".join(map(_rendered, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _name(value: Any) -> str:
    match value:
        case _Number():
            return value[:40]
        case dict():
            return "an object"
        case list():
            return "a list"
        case None:
            return "null"
    return json.dumps(value)[:40]
