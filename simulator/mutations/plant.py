"""How a bug is planted: a mutation replaces one function or value while its block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

SEEDS_MAX: Final = 60
"""Within so many a planted bug has to be caught, if it does not name fewer."""


class Mutation(NamedTuple):
    """One planted bug."""

    name: str
    rule: str
    """The one that it breaks."""
    profile: str
    """Of the swarm, under which it is looked for; empty: any run."""
    plant: Callable[[], AbstractContextManager[Any]]


_ALL: list[Mutation] = []
_UNCAUGHT: list[Mutation] = []


def mutation(
    rule: str, profile: str = ""
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Registers a bug; the name of the function is its name."""

    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        _ALL.append(Mutation(plant.__name__.replace("_", " "), rule, profile, contextmanager(plant)))
        return plant

    return register


def uncaught(
    rule: str, profile: str = ""
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Registers a bug that no seed has caught yet: harmless, out of reach of every run, or not looked for
    long enough. `mutations` leaves it out."""

    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        _UNCAUGHT.append(Mutation(plant.__name__.replace("_", " "), rule, profile, contextmanager(plant)))
        return plant

    return register


def uncaught_mutations() -> list[Mutation]:
    """Those that are to be looked for, or to be dropped."""
    return list(_UNCAUGHT)


def mutations() -> list[Mutation]:
    """All, in the order in which their modules name them."""
    return list(_ALL)


def patched(*patches: tuple[Any, str, Any]) -> ExitStack:
    """(owner, name, value): what stands in for what, until the block ends."""
    stack = ExitStack()
    for owner, name, value in patches:
        stack.enter_context(mock.patch.object(owner, name, value))
    return stack
