"""Registers planted bugs. A mutation replaces one function or value while its block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

SEEDS_MAX: Final = 60
"""A planted bug must be caught within this many seeds."""


class Mutation(NamedTuple):
    """One planted bug."""

    name: str
    rule: str
    """The rule that it breaks."""
    profile: str
    """The profile of the runs that must catch it; empty: runs without a profile."""
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
    """Registers a bug that no seed has caught yet: it is harmless, out of reach of all runs, or not enough
    seeds were run. `mutations` does not contain it."""

    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        _UNCAUGHT.append(Mutation(plant.__name__.replace("_", " "), rule, profile, contextmanager(plant)))
        return plant

    return register


def uncaught_mutations() -> list[Mutation]:
    """The bugs that no seed has caught yet."""
    return list(_UNCAUGHT)


def mutations() -> list[Mutation]:
    """All bugs that must be caught, in the order in which their modules register them."""
    return list(_ALL)


def patched(*patches: tuple[Any, str, Any]) -> ExitStack:
    """Replaces attributes until the block ends; each patch is (owner, name, value)."""
    stack = ExitStack()
    for owner, name, value in patches:
        stack.enter_context(mock.patch.object(owner, name, value))
    return stack
