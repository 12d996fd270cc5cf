"""Subjects and patterns: which are valid, and which a pattern with wildcards leaves alone (N6).

It exists so that a person who gives us a subject hears at once, in one sentence, what is wrong
with it, and so that recording ``>`` does not record the cluster's own traffic. Everything is
bytes: a subject that is not UTF-8 is unusual, not an error. ``connection`` subscribes to what has
been checked here, ``recorder`` asks what is reserved; patterns of streams are checked when a
stream is made (``tidelog.model``).

A subject is tokens joined by dots. In a pattern a token ``*`` stands for any one token and a
last token ``>`` for one or more.
"""

import re

from tidelog_broker.nats.errors import SubjectInvalid

SUBJECT_BYTES_MAX = 1024
"""Longest subject or pattern we subscribe or publish to. A server takes 4 KiB for a whole line."""

RESERVED_PREFIXES = (b"$", b"_INBOX.")
"""Subjects that begin so are never recorded by a pattern with wildcards (N6): the system's own
traffic, and replies to requests. ``subject.startswith(RESERVED_PREFIXES)`` is the whole test."""

_UNPRINTABLE = re.compile(rb"[\x00-\x1f\x7f]")


def check_subject(subject: bytes) -> None:
    """Raise SubjectInvalid unless one can publish to this subject: valid tokens, no wildcards."""
    check_pattern(subject)
    if has_wildcard(subject):
        raise SubjectInvalid(subject, "has wildcards; here a subject is needed that names one thing")


def check_pattern(pattern: bytes) -> None:
    """Raise SubjectInvalid unless one can subscribe to this pattern."""
    if not pattern:
        raise SubjectInvalid(pattern, "is empty")
    if len(pattern) > SUBJECT_BYTES_MAX:
        raise SubjectInvalid(pattern, f"is {len(pattern)} bytes long; the limit is {SUBJECT_BYTES_MAX}")
    if b" " in pattern:
        raise SubjectInvalid(pattern, "contains a space; words in a subject are separated by dots")
    if _UNPRINTABLE.search(pattern):
        raise SubjectInvalid(pattern, "contains a tab, a line break or another control character")
    if pattern.startswith(b"."):
        raise SubjectInvalid(pattern, "begins with a dot")
    if pattern.endswith(b"."):
        raise SubjectInvalid(pattern, "ends with a dot")
    if b".." in pattern:
        raise SubjectInvalid(pattern, "has two dots in a row, with nothing between them")
    tokens = pattern.split(b".")
    for token in tokens:
        if len(token) > 1 and (b"*" in token or b">" in token):
            shown = token.decode("utf-8", "backslashreplace")
            raise SubjectInvalid(
                pattern, f"has a wildcard inside the word {shown!r}; '*' and '>' stand for whole words only"
            )
    if b">" in tokens[:-1]:
        raise SubjectInvalid(pattern, "has '>' before its end; '>' can only be the last word")


def has_wildcard(pattern: bytes) -> bool:
    """Whether a valid pattern can match more than one subject."""
    return b"*" in pattern or pattern.endswith(b">")


def may_match_reserved(pattern: bytes) -> bool:
    """Whether messages of a subscription to this pattern have to be tested against RESERVED_PREFIXES.

    False for most patterns, whose first word is not a wildcard: those need no test per message.
    """
    return pattern.startswith((b"*", b">"))


def is_reserved(subject: bytes) -> bool:
    """Whether patterns with wildcards must not record this subject (N6)."""
    return subject.startswith(RESERVED_PREFIXES)
