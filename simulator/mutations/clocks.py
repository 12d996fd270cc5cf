"""Bugs in what is known of time, and of data directories that are older than they seem (R18, R19)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker import assembly
from tidelog_broker.core.metadata import registration
from tidelog_broker.runtime.cluster_clock import ClusterClock


def _never(known: Any, directory_id: bytes, starts: int) -> str:
    return ""


@mutation("R18", "old records")
def retention_goes_by_the_clock_of_its_broker() -> Iterator[None]:
    with patched((ClusterClock, "retention_us", lambda self: self.wall())):
        yield


@uncaught("R18", "old records")
def records_are_dated_by_the_clock_of_their_leader() -> Iterator[None]:
    """One that is behind makes the first record of a log old to the next leader; behind another record the
    append time of that counts. Such a leader hands over after `clock_yield`, so runs hardly ever have it.
    `tests/quorum/test_planted_clocks.py` plants it, too."""
    with patched((ClusterClock, "append_us", lambda self: self.wall())):
        yield


@mutation("R19", "old volumes")
def a_volume_that_was_put_back_is_counted_until_it_is_taken() -> Iterator[None]:
    """The controller refuses it, and each start brings its count further."""
    with patched((assembly, "put_back", _never)):
        yield


@mutation("R19", "old volumes")
def a_volume_that_was_put_back_is_taken() -> Iterator[None]:
    with patched((assembly, "put_back", _never), (registration, "put_back", _never)):
        yield
