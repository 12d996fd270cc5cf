"""Who may call, and what: one for each broker, asked by both doors.

Neighbours: `identity.authentication` knows who calls, `access` what the caller may do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelog_broker.api.access import UNRESTRICTED, Access, Authorization
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.identity.authentication import Authentication
from tidelog_broker.identity.identity import Identity

CREDENTIALS_MAX: Final = 4096
"""Credentials whose access is remembered; the oldest are forgotten."""


class AccessControl:
    """Authentication and authorization, put together."""

    def __init__(self, authentication: Authentication, authorization: Authorization) -> None:
        self.authentication = authentication
        self.authorization = authorization
        self._known: OrderedDict[tuple[str, tuple[bytes, ...]], Access] = OrderedDict()
        """What callers may do, by what they show: calls with one record must not pay for it each time."""

    def __repr__(self) -> str:
        return f"<AccessControl {self.authentication!r} {self.authorization!r}>"

    async def admit(
        self, authorization: str, certificate: tuple[bytes, ...], *, just_verified: bool = False
    ) -> Access:
        """What the caller with these credentials may do (`Authentication.identify`).

        Raises `Unauthenticated` or `Unavailable`.
        """
        if not self.authentication.required and (just_verified or not certificate):
            return UNRESTRICTED
        shown = authorization, certificate
        access = self._known.get(shown)
        if access is None or access.identity.doubt():
            identity = await self.authentication.identify(
                authorization, certificate, just_verified=just_verified
            )
            access = self._access_of(identity)
            self._remember(shown, access)
        access.check_known()
        return access

    def _access_of(self, identity: Identity) -> Access:
        if self.authentication.required:
            return self.authorization.access_of(identity)
        return Access(identity)

    def _remember(self, shown: tuple[str, tuple[bytes, ...]], access: Access) -> None:
        self._known[shown] = access
        if len(self._known) > CREDENTIALS_MAX:
            self._known.popitem(last=False)

    @contextmanager
    def watched(self, access: Access) -> Iterator[None]:
        """Around a call that runs for long. Raises `Unavailable` in it when its credentials are withdrawn."""
        with self.authentication.watched(access.identity):
            yield


def open_to_all() -> AccessControl:
    """Nobody is asked: for clusters that run without authentication."""
    return AccessControl(Authentication(required=False), Authorization(ClusterImage, frozenset()))
