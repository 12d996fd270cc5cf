"""Subjects, patterns, and which patterns are subscribed to."""

from __future__ import annotations


def is_met(pattern: bytes, subject: bytes) -> bool:
    """Whether the subject matches the pattern."""
    wanted, words = pattern.split(b"."), subject.split(b".")
    for at, token in enumerate(wanted):
        if token == b">":
            return len(words) > at
        if at >= len(words) or token not in (b"*", words[at]):
            return False
    return len(words) == len(wanted)


def is_subject(name: bytes, *, wildcards: bool) -> bool:
    """Whether a server accepts the name: words without blanks, joined by dots."""
    words = name.split(b".")
    if not all(words) or b"\x00" in name:
        return False
    if wildcards:
        return b">" not in words[:-1]
    return b"*" not in words and b">" not in words


class Interest:
    """Patterns, each with its number of subscriptions."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    @property
    def patterns(self) -> list[bytes]:
        return list(self._counts)

    def add(self, pattern: bytes) -> bool:
        """Adds a subscription; whether it is the first one of the pattern."""
        count = self._counts.get(pattern, 0)
        self._counts[pattern] = count + 1
        return not count

    def remove(self, pattern: bytes) -> bool:
        """Removes a subscription; whether it was the last one of the pattern."""
        count = self._counts.pop(pattern, 0) - 1
        if count > 0:
            self._counts[pattern] = count
        return count == 0

    def wants(self, subject: bytes) -> bool:
        """Whether a subscription matches the subject."""
        return any(is_met(pattern, subject) for pattern in self._counts)
