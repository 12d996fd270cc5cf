"""Tokens of an OpenID Connect provider, verified with the keys that it publishes (RFC 7517).

The keys come from a file or from an address. They are read again now and then, and when a token names a key
that is not among them; a key that the provider withdraws counts until then (A3). If they cannot be read, the
last ones count.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import jwt
import structlog

from tidelog.errors import Unauthenticated, Unavailable
from tidelog.model.access import is_principal_name
from tidelog_broker.identity.identity import Clocks, Identity
from tidelog_broker.identity.json_web_tokens import (
    claims_of,
    expiry_of,
    list_claim,
    looks_like_one,
    parsed,
    text_claim,
)
from tidelog_broker.identity.remembered import Remembered, hash_of

log = structlog.get_logger(__name__)

KEYS_SECONDS: Final = 300.0
"""How often the keys are read again."""

NEW_KEYS_SECONDS_MIN: Final = 10.0
"""The shortest time between two readings, however many tokens name unknown keys."""

LEEWAY_SECONDS: Final = 30
"""How far the clocks of provider and broker may be apart."""

GROUPS_MAX: Final = 256
"""Groups of one token; further ones are not counted."""

KUBERNETES_GROUPS: Final = "system:"
"""Groups of Kubernetes begin with it. A provider cannot put its principals into them."""

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Those with a public key. A secret that both know would let each broker make tokens."""

ReadKeys = Callable[[], Awaitable[bytes]]
"""Reads the key set (JSON). Raises OSError."""


class Provider(NamedTuple):
    """What is expected of a token."""

    issuer: str
    audience: str
    principal_claim: str = "sub"
    groups_claim: str = "groups"


class OpenId:
    """The identities of tokens of one provider."""

    def __init__(self, provider: Provider, read_keys: ReadKeys, clocks: Clocks) -> None:
        self._provider = provider
        self._read_keys = read_keys
        self._clocks = clocks
        self._keys: dict[str, jwt.PyJWK] = {}
        """By key id."""
        self._read_at: float | None = None
        """On the clock of elapsed time."""
        self._reading: asyncio.Task[None] | None = None
        self._known: Remembered[Identity] = Remembered()
        """Only those of verified tokens, so that strangers displace none."""

    def __repr__(self) -> str:
        return f"<OpenId {self._provider.issuer} keys={len(self._keys)}>"

    def takes(self, token: str) -> bool:
        if not looks_like_one(token):
            return False
        try:
            return text_claim(claims_of(token), "iss") == self._provider.issuer
        except Unauthenticated:
            return False

    async def identity_of(self, token: str) -> Identity:
        token_hash = hash_of(token)
        identity = self._known.find(token_hash)
        if identity is None:
            identity = await self._verified(token)
            self._known.keep(token_hash, identity)
        wrong = identity.doubt()
        if wrong:
            self._known.forget(token_hash)
            raise Unauthenticated(wrong)
        return identity

    async def _verified(self, token: str) -> Identity:
        provider = self._provider
        key_id = _key_id(token)
        key = await self._key(key_id)
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=provider.audience,
                issuer=provider.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": True},
            )
        except (jwt.PyJWTError, OverflowError) as error:
            # PyJWT lets the error of a time without an end through.
            raise Unauthenticated(f"the token of this call is not valid: {error}") from None
        name = text_claim(claims, provider.principal_claim)
        if not is_principal_name(name):
            raise Unauthenticated(
                f"the token of this call names no principal in its claim {provider.principal_claim!r}"
            )
        groups = tuple(
            f"group:{group}"
            for group in list_claim(claims, provider.groups_claim)[:GROUPS_MAX]
            if is_principal_name(group) and not group.startswith(KUBERNETES_GROUPS)
        )
        expires = expiry_of(claims)
        return Identity(f"oidc:{name}", groups, lambda: self._doubt(key_id, expires))

    def _doubt(self, key_id: str, expires: float) -> str:
        if self._clocks.wall() >= expires + LEEWAY_SECONDS:
            return "the token of this call has expired; call again with a new token"
        self._read_if_older_than(KEYS_SECONDS)
        if key_id not in self._keys:
            return "the key that signed the token of this call was withdrawn; call again with a new token"
        return ""

    async def _key(self, key_id: str) -> jwt.PyJWK:
        self._read_if_older_than(KEYS_SECONDS)
        if key_id not in self._keys:
            self._read_if_older_than(NEW_KEYS_SECONDS_MIN)
            if self._reading is not None:
                await asyncio.shield(self._reading)
        if not self._keys:
            raise Unavailable(
                f"the keys of {self._provider.issuer} cannot be read, so no token of it can be verified; try "
                "again later",
                retry_after_ms=1000,
            )
        key = self._keys.get(key_id)
        if key is None:
            raise Unauthenticated(
                f"the token of this call is signed with a key that {self._provider.issuer} does not publish"
            )
        return key

    def _read_if_older_than(self, seconds: float) -> None:
        now = self._clocks.elapsed()
        if self._reading is None and (self._read_at is None or now - self._read_at >= seconds):
            self._read_at = now
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            keys = _keys_in(await self._read_keys())
        except (OSError, ValueError, jwt.PyJWTError) as error:
            log.warning(
                "the keys of the OpenID Connect provider cannot be read; the last ones count",
                issuer=self._provider.issuer,
                reason=str(error),
            )
        else:
            self._keys = keys
        finally:
            self._reading = None


def _keys_in(data: bytes) -> dict[str, jwt.PyJWK]:
    found = jwt.PyJWKSet.from_dict(json.loads(data))
    return {key.key_id: key for key in found.keys if key.key_id and key.public_key_use in (None, "sig")}


def _key_id(token: str) -> str:
    key_id = parsed(lambda: jwt.get_unverified_header(token)).get("kid")
    if not isinstance(key_id, str):
        raise Unauthenticated("the token of this call does not name the key that signed it (kid)")
    return key_id
