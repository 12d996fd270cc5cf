"""Names that people choose: of streams, of the subjects they record, of their labels and owners.

A mistake in one is answered with one sentence that says what would be right, by the
client before it asks and by the broker again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.errors import InvalidRequest

STREAM_NAME_MAX = 200
INTERNAL_PREFIX = "__"
"""Names that start so belong to the brokers."""

SUBJECT_BYTES_MAX = 1024
"""A longer NATS subject pattern is refused."""

RESERVED_SUBJECTS = ("$", "_INBOX.")
"""Subjects that begin so are recorded by name only, never by a wildcard (N6)."""

LABELS_MAX = 64
LABEL_BYTES_MAX = 512
"""Of a label's name and value together."""

OWNER_BYTES_MAX = 1024

_STREAM_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,199}")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


def validate_stream_name(name: str, *, internal: bool = False) -> None:
    """Raises `InvalidRequest` unless `name` may name a stream; `internal` ones may start with ``__``."""
    _check_text("name", name)
    if _STREAM_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[: STREAM_NAME_MAX + 1]!r} cannot name a stream: a name has 1–{STREAM_NAME_MAX} letters, "
            "digits, '.', '_' or '-', and starts with a letter, a digit or '_'",
            field="name",
        )
    if name.startswith(INTERNAL_PREFIX) and not internal:
        raise InvalidRequest(
            f"{name!r} cannot name a stream: what starts with {INTERNAL_PREFIX!r} belongs to the brokers",
            field="name",
        )


def validate_subject_pattern(subject: str) -> None:
    """Raises `InvalidRequest` unless `subject` is a NATS subject that may be subscribed to."""
    wrong = _subject_mistake(subject)
    if wrong:
        raise InvalidRequest(
            f"{subject[:SUBJECT_BYTES_MAX]!r} is not a NATS subject: {wrong}", field="subject"
        )


def _subject_mistake(subject: str) -> str:
    if not subject:
        return "it is empty"
    if len(subject.encode("utf-8", "surrogatepass")) > SUBJECT_BYTES_MAX:
        return f"it has more than {SUBJECT_BYTES_MAX} bytes"
    if _UNPRINTABLE.search(subject):
        return "it holds a space or a control character"
    if not subject.isprintable():
        return "it holds a character that cannot be printed"
    tokens = subject.split(".")
    for position, token in enumerate(tokens):
        if not token:
            return "between two dots, before the first and after the last there must be a token"
        if token == ">" and position < len(tokens) - 1:
            return "'>' may only be its last token"
        if len(token) > 1 and ("*" in token or ">" in token):
            return f"'*' and '>' must stand alone in a token, not as in {token!r}"
    if subject.startswith(RESERVED_SUBJECTS) and ("*" in tokens or ">" in tokens):
        return "wildcards never record what begins with '$' or '_INBOX.', so it would record nothing"
    return ""


def validate_labels(labels: Mapping[str, str]) -> None:
    """Raises `InvalidRequest` if there are too many labels or one is too long or has no name."""
    if not isinstance(labels, Mapping):
        raise InvalidRequest(
            f"labels is of type {type(labels).__name__}; it must be a mapping of str to str", field="labels"
        )
    if len(labels) > LABELS_MAX:
        raise InvalidRequest(f"{len(labels)} labels; a stream has at most {LABELS_MAX}", field="labels")
    for name, value in labels.items():
        _check_text("a label's name", name, "labels")
        _check_text(f"the label {name[:40]}", value, "labels")
        if not name:
            raise InvalidRequest("a label has no name; give it one", field="labels")
        if len(name.encode()) + len(value.encode()) > LABEL_BYTES_MAX:
            raise InvalidRequest(
                f"the label {name[:40]!r} has more than {LABEL_BYTES_MAX} bytes with its value",
                field="labels",
            )


def validate_owner(owner: str) -> None:
    """Raises `InvalidRequest` if an owner's name is too long."""
    _check_text("owner", owner)
    if len(owner.encode()) > OWNER_BYTES_MAX:
        raise InvalidRequest(
            f"an owner's name has {len(owner.encode())} bytes; it has at most {OWNER_BYTES_MAX}",
            field="owner",
        )


def _check_text(what: str, value: object, field: str = "") -> None:
    """Raises `InvalidRequest` unless `value` is text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise InvalidRequest(
            f"{what} is {value!r} ({type(value).__name__}); it must be a str", field=field or what
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"{what} is {value!r}; it must be valid Unicode text", field=field or what
        ) from None
