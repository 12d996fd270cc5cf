"""Tokens of Kubernetes service accounts: the API server reviews them (TokenReview).

The API server knows whether the service account, or the pod that the token is bound to, still exists. Its
answer counts for `REVIEW_SECONDS`, and while it does not answer for `UNCONFIRMED_SECONDS_MAX` (A3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from tidelog.errors import Unauthenticated, Unavailable
from tidelog_broker.identity.identity import Clocks, Identity
from tidelog_broker.identity.json_web_tokens import claims_of, expiry_of, looks_like_one
from tidelog_broker.identity.remembered import Remembered, hash_of

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


class _Refusal(NamedTuple):
    """The API server does not accept a token."""

    sentence: str
    asked: float
    """When; on the clock of elapsed time."""


class _Account(NamedTuple):
    """The API server accepts a token."""

    principal: str
    groups: tuple[str, ...]
    asked: float


_Answer = _Refusal | _Account


class _Token:
    """A token that the API server has accepted. Running calls hold it, also after it was forgotten."""

    def __init__(self, text: str, expires: float, answer: _Account, source: ServiceAccounts) -> None:
        self.text = text
        self._expires = expires
        self._confirmed = answer.asked
        self._refusal = ""
        self._source = source
        self.identity = Identity(answer.principal, answer.groups, self._doubt)

    def take(self, answer: _Answer) -> None:
        """The API server was asked again."""
        if isinstance(answer, _Refusal):
            self._refusal = answer.sentence
        elif (answer.principal, *answer.groups) != self.identity.principals:
            self._refusal = "the groups of the token of this call have changed; call again"
        else:
            self._confirmed = max(self._confirmed, answer.asked)

    @property
    def age(self) -> float:
        """Since the API server has confirmed it. s."""
        return self._source.clocks.elapsed() - self._confirmed

    @property
    def is_refused(self) -> bool:
        return bool(self._refusal)

    def _doubt(self) -> str:
        if self._refusal:
            return self._refusal
        if self._source.clocks.wall() >= self._expires:
            return "the token of this call has expired; call again with a new token"
        if self.age >= UNCONFIRMED_SECONDS_MAX:
            return (
                "the API server of Kubernetes has not confirmed the token of this call for "
                f"{UNCONFIRMED_SECONDS_MAX / 60:g} minutes"
            )
        if self.age >= REVIEW_SECONDS:
            self._source.review_behind(self)
        return ""


class ServiceAccounts:
    """The identities of tokens that Kubernetes gave out."""

    def __init__(self, review: Review, audience: str, clocks: Clocks) -> None:
        self._review = review
        self._audience = audience
        self.clocks = clocks
        self._tokens: Remembered[_Token] = Remembered()
        self._refused: Remembered[_Refusal] = Remembered()
        """Apart, so that made-up tokens of strangers displace no accepted one."""
        self._reviews: dict[bytes, asyncio.Task[_Answer]] = {}

    def __repr__(self) -> str:
        return f"<ServiceAccounts known={len(self._tokens)} reviews={len(self._reviews)}>"

    def takes(self, token: str) -> bool:
        return looks_like_one(token)

    async def identity_of(self, token: str) -> Identity:
        token_hash = hash_of(token)
        refused = self._refused.find(token_hash)
        if refused is not None and self.clocks.elapsed() - refused.asked < REFUSAL_SECONDS:
            raise Unauthenticated(refused.sentence)
        known = self._tokens.find(token_hash)
        if known is None or known.is_refused or known.age >= REVIEW_SECONDS:
            known = await self._reviewed(token, token_hash, known)
        wrong = known.identity.doubt()
        if wrong:
            raise Unauthenticated(wrong)
        return known.identity

    async def _reviewed(self, token: str, token_hash: bytes, known: _Token | None) -> _Token:
        """Asks the API server. Raises `Unauthenticated` or `Unavailable`."""
        expires = expiry_of(claims_of(token))
        try:
            answer = await asyncio.shield(self._task(token, token_hash))
        except (OSError, Unavailable) as error:
            if known is not None:
                # Its doubt says when the last answer is too old.
                return known
            if isinstance(error, Unavailable):
                raise
            raise Unavailable(
                f"the API server of Kubernetes could not be asked about the token of this call ({error}); "
                "try again later",
                retry_after_ms=1000,
            ) from None
        if isinstance(answer, _Refusal):
            self._tokens.forget(token_hash)
            self._refused.keep(token_hash, answer)
            if known is not None:
                known.take(answer)
            raise Unauthenticated(answer.sentence)
        # Calls that shared the review share the token, too.
        known = known or self._tokens.find(token_hash)
        if known is not None:
            known.take(answer)
        if known is None or known.is_refused:
            known = _Token(token, expires, answer, self)
            self._tokens.keep(token_hash, known)
        return known

    def _task(self, token: str, token_hash: bytes) -> asyncio.Task[_Answer]:
        """The review that runs, or a new one. Raises `Unavailable` if there are too many."""
        task = self._reviews.get(token_hash)
        if task is None:
            if len(self._reviews) >= REVIEWS_MAX:
                raise Unavailable(
                    f"{REVIEWS_MAX} tokens are being reviewed already; try again later", retry_after_ms=500
                )
            task = self._reviews[token_hash] = asyncio.create_task(self._ask(token))
            task.add_done_callback(lambda _: self._reviews.pop(token_hash, None))
        return task

    async def _ask(self, token: str) -> _Answer:
        asked = self.clocks.elapsed()
        status = await self._review(token)
        try:
            principal, groups = self._principal_in(status)
        except Unauthenticated as error:
            return _Refusal(str(error), asked)
        return _Account(principal, groups, asked)

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

    def review_behind(self, token: _Token) -> None:
        """Asks about a token of a running call; the next look at the call finds the answer."""
        try:
            task = self._task(token.text, hash_of(token.text))
        except Unavailable:
            # Too many at once: the next look asks.
            return
        task.add_done_callback(partial(_told, token))


def _told(token: _Token, review: asyncio.Task[_Answer]) -> None:
    if review.cancelled():
        return
    error = review.exception()
    if error is None:
        token.take(review.result())
    elif isinstance(error, OSError):
        log.warning("the API server of Kubernetes could not be asked about a token", reason=str(error))
    else:
        log.error("a token could not be reviewed because of an internal error", exc_info=error)
