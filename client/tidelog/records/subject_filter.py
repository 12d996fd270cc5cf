"""Matches a column of subjects with NATS patterns, without a Python object for each record.

Subjects without wildcards are matched by a hash table. With patterns, each different subject is matched once,
by RE2, whose time grows linearly with its input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_FEW: Final = 64
"""Different subjects of a batch that are looked up: for more of them, the patterns are compiled again."""

_KNOWN_BYTES_MAX: Final = 64 << 10
"""Of subjects that are known."""

_TOKEN = "[^.]+"
_TOKENS = r"[^.]+(?:\.[^.]+)*"


class SubjectFilter:
    """Some subjects and patterns, of which a record's subject must match one.

    `*` stands for one token, a last `>` for one or more tokens. A token has at least one character.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        exact = [pattern for pattern in patterns if not _has_wildcard(pattern)]
        wild = [pattern for pattern in patterns if _has_wildcard(pattern)]
        self._exact = pa.array(exact, pa.utf8()) if exact else None
        self._known: dict[str, bool] = {}
        """Whether subjects match that were there lately."""
        self._known_bytes = 0
        self._regex = rf"\A(?:{'|'.join(map(_regex, wild))})\z" if wild else None

    def matches(self, subjects: pa.StringArray) -> pa.BooleanArray:
        """For each subject whether it matches; null or false for a record without a subject."""
        if self._regex is None:
            return self._each(subjects)
        encoded = subjects.dictionary_encode()
        different = encoded.dictionary
        few = len(different) <= _FEW and different.nbytes <= _KNOWN_BYTES_MAX
        return (self._known_each if few else self._each)(different).take(encoded.indices)

    def _known_each(self, subjects: pa.StringArray) -> pa.BooleanArray:
        """As `_each`, from memory: small batches have the same subjects again and again."""
        names = subjects.to_pylist()
        new = [name for name in names if name not in self._known]
        if new:
            if self._known_bytes + subjects.nbytes > _KNOWN_BYTES_MAX:
                self._known, self._known_bytes, new = {}, 0, names
            self._known_bytes += subjects.nbytes
            self._known.update(zip(new, self._each(pa.array(new, pa.utf8())).to_pylist(), strict=True))
        return pa.array([self._known[name] for name in names], pa.bool_())

    def _each(self, subjects: pa.StringArray) -> pa.BooleanArray:
        if self._regex is None:
            return pc.is_in(subjects, value_set=self._exact)
        found = pc.match_substring_regex(subjects, pattern=self._regex)
        return found if self._exact is None else pc.or_(found, pc.is_in(subjects, value_set=self._exact))


def _has_wildcard(pattern: str) -> bool:
    return not {"*", ">"}.isdisjoint(pattern.split("."))


def _regex(pattern: str) -> str:
    tokens = {"*": _TOKEN, ">": _TOKENS}
    return r"\.".join(tokens.get(token) or re.escape(token) for token in pattern.split("."))
