"""The arguments of public methods, checked: a wrong type is refused before anything is sent or kept.

Every function returns the value as the library uses it, or raises `InvalidRequest` (definite) that names
the argument, shows its value and says what it must be. `tidelog.model` checks the values of streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Final, TypeVar

from tidelog.errors import InvalidRequest
from tidelog.model import Headers, Projection
from tidelog.records.limits import HEADERS_PER_RECORD_MAX

T = TypeVar("T")

GivenHeaders = Mapping[str, "bytes | None"] | Iterable[tuple[str, "bytes | None"]]
"""The forms in which a caller may give headers."""

SHOWN_CHARS_MAX: Final = 60
"""An error shows at most this many characters of a wrong value."""

STREAM_ID_BYTES: Final = 16
"""A UUID."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def wrong_type(name: str, value: object, right: str, field: str = "") -> InvalidRequest:
    """The error for an argument of the wrong type; `right` completes "it must be …".

    `field` is the argument that `name` is a part of; empty: `name` is the argument.
    """
    shown = repr(value)
    if len(shown) > SHOWN_CHARS_MAX:
        shown = shown[:SHOWN_CHARS_MAX] + "…"
    return InvalidRequest(
        f"{name} is {shown} ({type(value).__name__}); it must be {right}", field=field or name
    )


def as_int(value: object, name: str, field: str = "") -> int:
    """An integer of any type that is one exactly (Python's, NumPy's), but no bool."""
    if not isinstance(value, bool):
        try:
            return index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise wrong_type(name, value, "an int", field)


def check_number(
    name: str, value: object, *, above: float | None = None, at_least: float | None = None
) -> None:
    """Raises `InvalidRequest` unless `value` is a number in these bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, "a number")
    if above is not None and not value > above:
        raise InvalidRequest(f"{name} is {value:g}; it must be above {above:g}", field=name)
    if at_least is not None and not value >= at_least:
        raise InvalidRequest(f"{name} is {value:g}; it must be at least {at_least:g}", field=name)


def check_int(name: str, value: object, at_least: int) -> None:
    """Raises `InvalidRequest` unless `value` is an integer and not below the bound."""
    if as_int(value, name) < at_least:
        raise InvalidRequest(f"{name} is {value}; it must be at least {at_least}", field=name)


def check_bool(name: str, value: object) -> None:
    """Raises `InvalidRequest` unless `value` is a bool."""
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raises `InvalidRequest` unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        *first, last = choices
        raise InvalidRequest(f"{name} is {value!r}; it must be {', '.join(first)} or {last}", field=name)


def check_str(name: str, value: object) -> None:
    """Raises `InvalidRequest` unless `value` is text."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "a str")


def check_stream_id(stream_id: object) -> None:
    """Raises `InvalidRequest` unless `stream_id` is None or the 16 bytes of a UUID."""
    if stream_id is not None and (not isinstance(stream_id, bytes) or len(stream_id) != STREAM_ID_BYTES):
        raise wrong_type("stream_id", stream_id, f"the {STREAM_ID_BYTES} bytes of a stream's id")


def as_us(moment: object, name: str) -> int:
    """Microseconds since the Unix epoch, exactly. A naive datetime is refused: it names no moment."""
    if not isinstance(moment, datetime):
        raise wrong_type(name, moment, "a datetime with a time zone")
    if moment.tzinfo is None:
        raise InvalidRequest(
            f"{name} is {moment.isoformat()}, which has no time zone; give it one, for example "
            "with .replace(tzinfo=UTC)",
            field=name,
        )
    return (moment - _EPOCH) // _MICROSECOND


def as_bytes(value: object, name: str, field: str = "") -> bytes | None:
    """Bytes; None stays None. A bytearray or memoryview is copied."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    # Not shown: it may be long, or secret.
    raise InvalidRequest(
        f"{name} is of type {type(value).__name__}; it must be bytes or None (encode text first)",
        field=field or name,
    )


def as_headers(given: GivenHeaders | None) -> Headers:
    """Headers as the model has them; at most `HEADERS_PER_RECORD_MAX`."""
    if not given:
        return ()
    try:
        pairs = given.items() if isinstance(given, Mapping) else given
        headers = tuple(
            (_as_text(name, "a header's name", "headers"), _header_value(value)) for name, value in pairs
        )
    except (TypeError, ValueError):
        raise wrong_type("headers", given, "a mapping of names to bytes, or (name, bytes) pairs") from None
    if len(headers) > HEADERS_PER_RECORD_MAX:
        raise InvalidRequest(
            f"a record has {len(headers)} headers; it must have at most {HEADERS_PER_RECORD_MAX}",
            field="headers",
        )
    return headers


def _header_value(value: object) -> bytes | None:
    return as_bytes(value, "a header's value", "headers")


def as_subject(subject: object) -> str | None:
    """The subject of a record; None: it has none."""
    return None if subject is None else _as_text(subject, "subject")


def _as_text(text: object, name: str, field: str = "") -> str:
    if not isinstance(text, str):
        raise InvalidRequest(
            f"{name} is of type {type(text).__name__}; it must be a str", field=field or name
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong_type(name, text, "valid Unicode text", field) from None
    return text


def as_projection(columns: object, subject_filter: object, keys: object) -> Projection | None:
    """What a reader wants of the records; None: all of them, whole."""
    if columns is None and subject_filter is None and keys is None:
        return None
    if isinstance(subject_filter, str):
        subject_filter = (subject_filter,)
    return Projection(
        _some("columns", columns, str, "a sequence of names of columns"),
        _some("subject_filter", subject_filter, str, "a NATS subject, or a sequence of them"),
        _some("keys", keys, bytes, "a sequence of bytes"),
    )


def _some(name: str, given: object, kind: type[T], right: str) -> tuple[T, ...]:
    """The entries of an argument, at least one; none if it was not given."""
    if given is None:
        return ()
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise wrong_type(name, given, right)
    found = tuple(given)
    if not found:
        raise InvalidRequest(f"{name} is empty; give at least one, or leave it out", field=name)
    for one in found:
        if not isinstance(one, kind):
            raise wrong_type(f"an entry of {name}", one, f"of type {kind.__name__}", name)
    return found
