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

IDENTITIES_MAX: Final = 4096
"""Identities whose access is remembered; the oldest are forgotten."""


class AccessControl:
    """Authentication and authorization, put together."""

    def __init__(self, authentication: Authentication, authorization: Authorization) -> None:
        self.authentication = authentication
        self.authorization = authorization
        self._access: OrderedDict[Identity, Access] = OrderedDict()
        """What callers may do: calls with one record must not pay for it each time. Sources give calls with
        the same credentials the same identity."""

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
        # Each time: the source of an identity knows when it must ask about the credentials again.
        identity = await self.authentication.identify(authorization, certificate, just_verified=just_verified)
        if not self.authentication.required:
            return Access(identity)
        access = self._access.get(identity)
        if access is None:
            access = self._access[identity] = self.authorization.access_of(identity)
            if len(self._access) > IDENTITIES_MAX:
                self._access.popitem(last=False)
        access.check_known()
        return access

    @contextmanager
    def watched(self, access: Access) -> Iterator[None]:
        """Around a call that runs for long. Raises `Unavailable` in it when its credentials are withdrawn."""
        with self.authentication.watched(access.identity):
            yield


def open_to_all() -> AccessControl:
    """For clusters that run without authentication."""
    return AccessControl(Authentication(required=False), Authorization(ClusterImage, frozenset()))
