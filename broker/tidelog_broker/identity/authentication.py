"""Asks the sources of identities who calls (A2), and ends calls whose credentials are withdrawn (A3).

Neighbour: `api.calls` asks at the begin of each call, and keeps long calls under watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tidelog.errors import Unauthenticated, Unavailable
from tidelog_broker.identity.certificates import ClientCertificates
from tidelog_broker.identity.identity import WITHOUT_CREDENTIALS, Identity, TokenSource
from tidelog_broker.identity.remembered import Remembered, hash_of

LOOK_SECONDS: Final = 1.0
"""How often the credentials of running calls are looked at."""

TOKEN_CHARACTERS_MAX: Final = 16 << 10

_BEARER: Final = "bearer "


class _Watched:
    """A call that may go on for hours."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.task = asyncio.current_task()
        self.reason = ""
        """Why it was ended; empty: it was not."""


class Authentication:
    """Knows who calls."""

    def __init__(
        self,
        *,
        required: bool,
        certificates: ClientCertificates | None = None,
        tokens: Sequence[TokenSource] = (),
    ) -> None:
        """`required`: calls have identities; otherwise a call is refused only if its certificate is
        withdrawn or has expired. `tokens`: the first source that takes a token decides."""
        self.required = required
        self._certificates = certificates
        self._tokens = tokens
        self._source_of: Remembered[TokenSource] = Remembered()
        """Some sources parse a token to see whether it is theirs."""
        self._watched: dict[_Watched, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Authentication {'required' if self.required else 'off'} watched={len(self._watched)}>"

    async def identify(
        self, authorization: str, certificate: tuple[bytes, ...], *, just_verified: bool = False
    ) -> Identity:
        """The identity of a call that begins.

        `authorization`: as in the HTTP header; empty: none. `certificate`: of its connection, and those that
        were sent after it, as PEM; empty: none. `just_verified`: the connection is for this call alone.
        Raises `Unauthenticated`, or `Unavailable` if a source of tokens does not answer.
        """
        if not self.required:
            return self._unasked(certificate)
        if authorization:
            return await self._by_token(authorization)
        if self._certificates is not None and certificate:
            return self._certificates.identity_of(certificate, just_verified=just_verified)
        return WITHOUT_CREDENTIALS

    def _unasked(self, certificate: tuple[bytes, ...]) -> Identity:
        if self._certificates is None or not certificate:
            return WITHOUT_CREDENTIALS
        return Identity(WITHOUT_CREDENTIALS.principal, doubt=self._certificates.checked(certificate))

    async def _by_token(self, authorization: str) -> Identity:
        if not authorization[: len(_BEARER)].lower() == _BEARER:
            raise Unauthenticated("the authorization of this call must be 'Bearer ' and a token")
        token = authorization[len(_BEARER) :].strip()
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise Unauthenticated(f"the token of this call has more than {TOKEN_CHARACTERS_MAX} characters")
        if not token.isascii():
            raise Unauthenticated("the token of this call has characters that are not ASCII")
        token_hash = hash_of(token)
        source = self._source_of.find(token_hash) or self._source_that_takes(token)
        self._source_of.keep(token_hash, source)
        return await source.identity_of(token)

    def _source_that_takes(self, token: str) -> TokenSource:
        for source in self._tokens:
            if source.takes(token):
                return source
        raise Unauthenticated("the token of this call is of no kind that this broker accepts")

    @contextmanager
    def watched(self, identity: Identity) -> Iterator[None]:
        """Around a call that runs for long. Raises `Unavailable` in it when its credentials are withdrawn.

        The client may try again, because it may have newer credentials.
        """
        if identity.always_good:
            yield
            return
        watched = _Watched(identity)
        self._watched[watched] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        try:
            yield
        except asyncio.CancelledError:
            if not watched.reason or watched.task is None:
                raise
            watched.task.uncancel()
            raise Unavailable(watched.reason) from None
        finally:
            del self._watched[watched]

    def _look(self) -> None:
        self._timer = None
        for watched in self._watched:
            if watched.reason or watched.task is None:
                continue
            watched.reason = watched.identity.doubt()
            if watched.reason:
                watched.task.cancel()
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
