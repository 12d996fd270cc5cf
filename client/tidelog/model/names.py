"""The names that users choose: of streams, subjects, sinks, labels and owners.

A wrong name raises an error of one sentence that says what is allowed. The client checks before it
sends a request, and the broker checks again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.errors import InvalidRequest

STREAM_NAME_MAX = 200
INTERNAL_PREFIX = "__"
"""Names with this prefix belong to the brokers."""

SUBJECT_BYTES_MAX = 1024
"""The longest NATS subject pattern."""

RESERVED_SUBJECTS = ("$", "_INBOX.")
"""Subjects with these prefixes are recorded only by their exact name, never by a wildcard (N6)."""

LABELS_MAX = 64
LABEL_BYTES_MAX = 512
"""Of a label's name and value together."""

OWNER_BYTES_MAX = 1024

SINK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,199}")
"""The name of a sink matches this as a whole."""

SINK_NAME_RULE = "1 to 200 letters, digits, '.', '_', ':' or '-', beginning with a letter, a digit or '_'"
"""The same for the sentences of errors."""

_STREAM_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,199}")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


def validate_stream_name(name: str, *, internal: bool = False) -> None:
    """Raises `InvalidRequest` unless a stream may have this name; an `internal` one may start with ``__``."""
    _check_text("name", name)
    if _STREAM_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[: STREAM_NAME_MAX + 1]!r} is not a valid stream name: a name has 1–{STREAM_NAME_MAX} "
            "letters, digits, '.', '_' or '-', and starts with a letter, a digit or '_'",
            field="name",
        )
    if name.startswith(INTERNAL_PREFIX) and not internal:
        raise InvalidRequest(
            f"{name!r} is not a valid stream name: names that start with {INTERNAL_PREFIX!r} belong to the "
            "brokers",
            field="name",
        )


def validate_subject_pattern(subject: str) -> None:
    """Raises `InvalidRequest` unless a broker can subscribe to the NATS subject `subject`."""
    wrong = _subject_mistake(subject)
    if wrong:
        raise InvalidRequest(
            f"{subject[:SUBJECT_BYTES_MAX]!r} is not a NATS subject: {wrong}", field="subject"
        )


def validate_subject_filter(subject: str) -> None:
    """Raises `InvalidRequest` unless records can be chosen by `subject`, a NATS subject with wildcards."""
    _check_text("subject_filter", subject)
    wrong = _token_mistake(subject)
    if wrong:
        raise InvalidRequest(
            f"{subject[:SUBJECT_BYTES_MAX]!r} is not a filter for NATS subjects: {wrong}",
            field="subject_filter",
        )


def _subject_mistake(subject: str) -> str:
    wrong = _token_mistake(subject)
    tokens = subject.split(".")
    if not wrong and subject.startswith(RESERVED_SUBJECTS) and ("*" in tokens or ">" in tokens):
        return "wildcards never record subjects that begin with '$' or '_INBOX.'; give an exact subject"
    return wrong


def _token_mistake(subject: str) -> str:
    if not subject:
        return "it is empty"
    if len(subject.encode("utf-8", "surrogatepass")) > SUBJECT_BYTES_MAX:
        return f"it has more than {SUBJECT_BYTES_MAX} bytes"
    if _UNPRINTABLE.search(subject):
        return "it contains a space or a control character"
    if not subject.isprintable():
        return "it contains a character that cannot be printed"
    tokens = subject.split(".")
    for position, token in enumerate(tokens):
        if not token:
            return "a token is empty; dots separate tokens of at least one character"
        if token == ">" and position < len(tokens) - 1:
            return "'>' is only allowed as the last token"
        if len(token) > 1 and ("*" in token or ">" in token):
            return f"'*' and '>' must be whole tokens, not parts of one as in {token!r}"
    return ""


def validate_labels(labels: Mapping[str, str]) -> None:
    """Raises `InvalidRequest` for too many labels, a label that is too long, and a label without a name."""
    if not isinstance(labels, Mapping):
        raise InvalidRequest(
            f"labels is of type {type(labels).__name__}; it must be a mapping of str to str", field="labels"
        )
    if len(labels) > LABELS_MAX:
        raise InvalidRequest(
            f"the stream has {len(labels)} labels; at most {LABELS_MAX} are allowed", field="labels"
        )
    for name, value in labels.items():
        _check_text("a label's name", name, "labels")
        _check_text(f"the label {name[:40]}", value, "labels")
        if not name:
            raise InvalidRequest("a label has an empty name; give it a name", field="labels")
        if len(name.encode()) + len(value.encode()) > LABEL_BYTES_MAX:
            raise InvalidRequest(
                f"the label {name[:40]!r} and its value have more than {LABEL_BYTES_MAX} bytes",
                field="labels",
            )


def validate_owner(owner: str) -> None:
    """Raises `InvalidRequest` if the name of an owner is too long."""
    _check_text("owner", owner)
    if len(owner.encode()) > OWNER_BYTES_MAX:
        raise InvalidRequest(
            f"the owner has {len(owner.encode())} bytes; at most {OWNER_BYTES_MAX} are allowed",
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
