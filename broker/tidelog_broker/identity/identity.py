"""A principal, its groups, and whether the credentials behind it are still good."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidelog.model.access import ANONYMOUS
from tidelog_broker.core.metadata.permissions import Principals

WallClock = Callable[[], float]
"""Unix time. s."""


class Clocks(NamedTuple):
    """Time, as the sources of identities need it."""

    wall: WallClock
    """For what says itself when it expires."""
    elapsed: Callable[[], float]
    """Time that passed since any moment, for the age of answers: a clock that is set makes no answer younger.
    s."""


class Identity:
    """The identity of a call. Equal credentials may share it."""

    __slots__ = ("always_good", "doubt", "groups", "principal")

    def __init__(
        self, principal: str, groups: tuple[str, ...] = (), doubt: Callable[[], str] | None = None
    ) -> None:
        """`doubt`: None: the credentials are good for as long as the broker runs."""
        self.principal = principal
        self.groups = groups
        self.always_good = doubt is None
        self.doubt = doubt or _no_doubt
        """Why the credentials are not valid any more, as a sentence; empty: they are valid (A3)."""

    def __repr__(self) -> str:
        return f"<Identity {self.principal}>"

    @property
    def principals(self) -> Principals:
        return (self.principal, *self.groups)


def _no_doubt() -> str:
    return ""


class TokenSource(Protocol):
    """Knows one kind of token."""

    def takes(self, token: str) -> bool:
        """Whether the token is of this kind; a glance at its form."""
        ...

    async def identity_of(self, token: str) -> Identity:
        """Raises `Unauthenticated`, or `Unavailable` if the source of the tokens does not answer."""
        ...


WITHOUT_CREDENTIALS = Identity(ANONYMOUS)
"""The identity of a call without credentials."""
