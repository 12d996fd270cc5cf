"""Matches a column of subjects with NATS patterns, without a Python object for each record.

Each different subject is matched once: subjects without wildcards by a hash table, patterns by RE2, whose
time grows linearly with its input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

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
        self._regex = rf"\A(?:{'|'.join(map(_regex, wild))})\z" if wild else None

    def matches(self, subjects: pa.StringArray) -> pa.BooleanArray:
        """For each subject whether it matches; null or false for a record without a subject."""
        encoded = subjects.dictionary_encode()
        return self._each(encoded.dictionary).take(encoded.indices)

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
