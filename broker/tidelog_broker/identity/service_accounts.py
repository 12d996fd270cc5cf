"""Tokens of Kubernetes service accounts: the API server reviews them (TokenReview).

The API server knows whether the service account, or the pod that the token is bound to, still exists. Its
answer counts for `REVIEW_SECONDS`, and while it does not answer for `UNCONFIRMED_SECONDS_MAX` (A3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from tidelog.errors import TidelogError, Unauthenticated, Unavailable
from tidelog_broker.identity.identity import Identity, WallClock
from tidelog_broker.identity.json_web_tokens import Remembered, claims_of, expiry_of, hash_of, looks_like_one

log = structlog.get_logger(__name__)

REVIEW_SECONDS: Final = 60.0
"""How long an answer of the API server counts."""

REFUSAL_SECONDS: Final = 10.0
"""How long a refusal of it counts: a client that asks all the time must not load the API server."""

UNCONFIRMED_SECONDS_MAX: Final = 600.0
"""How long an answer counts if the API server gives no other one."""

REVIEWS_MAX: Final = 64
"""Reviews at a time."""

_USER: Final = "system:serviceaccount:"

Review = Callable[[str], Awaitable[dict[str, Any]]]
"""Asks the API server about a token: the status of the TokenReview. Raises OSError."""


@dataclass(slots=True)
class _Known:
    identity: Identity | None
    """None: the API server refused the token."""
    reviewed: float
    """When the API server answered last; Unix time."""
    expires: float
    refusal: str = ""


class ServiceAccounts:
    """The identities of tokens that Kubernetes gave out."""

    def __init__(self, review: Review, audience: str, now: WallClock) -> None:
        self._review = review
        self._audience = audience
        self._now = now
        self._known: Remembered[_Known] = Remembered()
        self._reviews: dict[bytes, asyncio.Task[_Known]] = {}

    def __repr__(self) -> str:
        return f"<ServiceAccounts known={len(self._known)} reviews={len(self._reviews)}>"

    def takes(self, token: str) -> bool:
        return looks_like_one(token)

    async def identity_of(self, token: str) -> Identity:
        token_hash = hash_of(token)
        known = self._known.find(token_hash)
        if known is None or self._now() - known.reviewed >= self._counts_for(known):
            known = await self._reviewed_again(token, token_hash, known)
        if known.identity is None:
            raise Unauthenticated(known.refusal)
        wrong = known.identity.doubt()
        if wrong:
            raise Unauthenticated(wrong)
        return known.identity

    @staticmethod
    def _counts_for(known: _Known) -> float:
        return REFUSAL_SECONDS if known.identity is None else REVIEW_SECONDS

    async def _reviewed_again(self, token: str, token_hash: bytes, known: _Known | None) -> _Known:
        try:
            return await asyncio.shield(self._task(token, token_hash))
        except OSError as error:
            if known is not None and known.identity is not None:
                # Its doubt says when that is too old.
                return known
            raise Unavailable(
                f"the API server of Kubernetes could not be asked about the token of this call ({error}); "
                "try again later",
                retry_after_ms=1000,
            ) from None

    def _task(self, token: str, token_hash: bytes) -> asyncio.Task[_Known]:
        task = self._reviews.get(token_hash)
        if task is None:
            if len(self._reviews) >= REVIEWS_MAX:
                raise Unavailable(
                    f"{REVIEWS_MAX} tokens are being reviewed already; try again later", retry_after_ms=500
                )
            task = self._reviews[token_hash] = asyncio.create_task(self._ask(token, token_hash))
            task.add_done_callback(lambda _: self._reviews.pop(token_hash, None))
        return task

    async def _ask(self, token: str, token_hash: bytes) -> _Known:
        expires = expiry_of(claims_of(token))
        status = await self._review(token)
        try:
            principal, groups = self._principal_in(status)
        except Unauthenticated as error:
            known = _Known(None, self._now(), expires, str(error))
        else:
            identity = Identity(principal, groups, lambda: self._doubt(token, token_hash))
            known = _Known(identity, self._now(), expires)
        self._known.keep(token_hash, known)
        return known

    def _principal_in(self, status: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Raises `Unauthenticated`."""
        if status.get("authenticated") is not True:
            reason = status.get("error") or "it is not a token of this cluster, or not for this audience"
            raise Unauthenticated(
                f"the API server of Kubernetes refused the token of this call: {str(reason)[:200]}. Give a "
                f"token of a service account with the audience {self._audience!r}"
            )
        if self._audience not in (status.get("audiences") or ()):
            # A server that knows no audiences says nothing of them.
            raise Unauthenticated(f"the token of this call is not for the audience {self._audience!r}")
        user = status.get("user") or {}
        namespace, colon, name = str(user.get("username", "")).removeprefix(_USER).partition(":")
        if not str(user.get("username", "")).startswith(_USER) or not colon:
            raise Unauthenticated("the token of this call is not a token of a service account")
        groups = tuple(f"group:{group}" for group in user.get("groups") or () if isinstance(group, str))
        return f"serviceaccount:{namespace}/{name}", groups

    def _doubt(self, token: str, token_hash: bytes) -> str:
        known = self._known.find(token_hash)
        now = self._now()
        if known is None:
            return "the token of this call was not reviewed lately; call again"
        if known.identity is None:
            return known.refusal
        if now >= known.expires:
            return "the token of this call has expired; call again with a new token"
        age = now - known.reviewed
        if age >= UNCONFIRMED_SECONDS_MAX:
            return (
                "the API server of Kubernetes has not confirmed the token of this call for "
                f"{UNCONFIRMED_SECONDS_MAX / 60:g} minutes"
            )
        if age >= REVIEW_SECONDS:
            self._review_behind(token, token_hash)
        return ""

    def _review_behind(self, token: str, token_hash: bytes) -> None:
        """The next look at a call that runs finds the answer."""
        try:
            self._task(token, token_hash).add_done_callback(_told)
        except Unavailable:
            # Too many at once: the next look asks.
            return


def _told(task: asyncio.Task[_Known]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, OSError | TidelogError):
        log.warning("the API server of Kubernetes could not be asked about a token", reason=str(error))
