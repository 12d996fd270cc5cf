"""What is common to tokens of other issuers: JSON Web Tokens (RFC 7519), read and remembered.

Nobody must believe what stands in a token before it is verified; `claims_of` is for the choice of the
verifier, and for tokens that were verified elsewhere. Neighbours: `openid` verifies signatures,
`service_accounts` lets Kubernetes do it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import jwt

from tidelog.errors import Unauthenticated

T = TypeVar("T")

TOKENS_MAX: Final = 10_000
"""Tokens that are remembered by each source."""


def claims_of(token: str) -> Mapping[str, Any]:
    """What the token says, unverified. Raises `Unauthenticated`."""
    try:
        found: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as error:
        raise Unauthenticated(f"the token of this call is not a JSON Web Token: {error}") from None
    return found


def looks_like_one(token: str) -> bool:
    return token.count(".") == 2


def text_claim(claims: Mapping[str, Any], name: str) -> str:
    """A claim that is text; empty: there is none."""
    value = claims.get(name)
    return value if isinstance(value, str) else ""


def list_claim(claims: Mapping[str, Any], name: str) -> list[str]:
    """The texts in a claim that is a list; other values count as none."""
    value = claims.get(name)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def expiry_of(claims: Mapping[str, Any]) -> float:
    """Unix time at which the token expires. Raises `Unauthenticated` if the token does not say when."""
    value = claims.get("exp")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unauthenticated("the token of this call does not say when it expires; use a token with exp")
    return float(value)


class Remembered(Generic[T]):
    """What is known of tokens, by their hash. The oldest are forgotten."""

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
