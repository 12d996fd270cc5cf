"""Tokens of the cluster: the image has their hashes, and only their owners have the tokens (A1)."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.errors import Unauthenticated
from tidelog.model.access import TOKEN_PREFIX
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.identity.identity import Identity, WallClock
from tidelog_broker.identity.remembered import Remembered, hash_of


class ClusterTokens:
    """Looks tokens up in the image, each time: withdrawn tokens count no more at once."""

    def __init__(self, image: Callable[[], ClusterImage], now: WallClock) -> None:
        self._image = image
        self._now = now
        self._identities: Remembered[Identity] = Remembered()
        """Calls with one token share one identity, and what it may do."""

    def __repr__(self) -> str:
        return f"<ClusterTokens {len(self._image().tokens)}>"

    def takes(self, token: str) -> bool:
        return token.startswith(TOKEN_PREFIX)

    async def identity_of(self, token: str) -> Identity:
        # A lookup by the hash tells nothing of the token by the time that it takes.
        token_hash = hash_of(token)
        found = self._image().tokens.find(token_hash)
        if found is None:
            raise Unauthenticated(
                "the token of this call is not known to the cluster; it may have been deleted"
            )
        identity = self._identities.find(token_hash)
        if identity is None or identity.principal != found.principal:
            identity = Identity(found.principal, doubt=lambda: self._doubt(token_hash))
            self._identities.keep(token_hash, identity)
        wrong = identity.doubt()
        if wrong:
            raise Unauthenticated(wrong)
        return identity

    def _doubt(self, token_hash: bytes) -> str:
        found = self._image().tokens.find(token_hash)
        if found is None:
            return "the token of this call was deleted; call again with another token"
        if found.expires_us and self._now() * 1e6 >= found.expires_us:
            return "the token of this call has expired; call again with a new token"
        return ""
