"""What is common to tokens of other issuers: JSON Web Tokens (RFC 7519), and how they are read.

Nothing in a token counts before it is verified; `claims_of` is for the choice of the
verifier, and for tokens that were verified elsewhere. Neighbours: `openid` verifies signatures,
`service_accounts` lets Kubernetes do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import jwt

from tidelog.errors import Unauthenticated

T = TypeVar("T")

EXPIRY_MAX: Final = 1e12
"""Unix time. A token that names a later moment never expires, which is not accepted."""


def parsed(read: Callable[[], T]) -> T:
    """What `read` reads of a token. Raises `Unauthenticated` for a token that it cannot read."""
    try:
        return read()
    except (jwt.PyJWTError, RecursionError) as error:
        raise Unauthenticated(f"the token of this call is not a JSON Web Token: {error}") from None


def claims_of(token: str) -> Mapping[str, Any]:
    """What the token says, unverified. Raises `Unauthenticated`."""
    found: Mapping[str, Any] = parsed(lambda: jwt.decode(token, options={"verify_signature": False}))
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
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= EXPIRY_MAX:
        return float(value)
    raise Unauthenticated("the token of this call does not say when it expires; use a token with exp")
