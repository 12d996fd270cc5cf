"""What is known of tokens, by their hash: no token itself is kept for longer than the calls that show it.

Each source of identities remembers what it found out, up to a limit. Nothing depends on it: what is forgotten
is found out again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TOKENS_MAX: Final = 10_000
"""Tokens that are remembered, by each source for each purpose."""


class Remembered(Generic[T]):
    """Facts about tokens. The longest known are forgotten first."""

    def __init__(self, count_max: int = TOKENS_MAX) -> None:
        self._count_max = count_max
        self._known: OrderedDict[bytes, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, token_hash: bytes) -> T | None:
        return self._known.get(token_hash)

    def keep(self, token_hash: bytes, known: T) -> None:
        self._known[token_hash] = known
        self._known.move_to_end(token_hash)
        while len(self._known) > self._count_max:
            self._known.popitem(last=False)

    def forget(self, token_hash: bytes) -> None:
        self._known.pop(token_hash, None)


def hash_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
