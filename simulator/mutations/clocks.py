"""Bugs in the use of clocks, and of data directories that were put back from a copy (R18, R19)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker import assembly
from tidelog_broker.core.metadata.controller import clocks, registration
from tidelog_broker.hosting.replica_host import BrokerPartitionHost
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.quorum import transport as control_neighbours


def _never(known: Any, directory_id: bytes, starts: int) -> str:
    return ""


@mutation("R18", "old records")
def retention_goes_by_the_clock_of_its_broker() -> Iterator[None]:
    with patched((ClusterClock, "retention_us", lambda self: self.wall())):
        yield


@mutation("R18", "old records")
def records_are_dated_by_the_clock_of_their_leader() -> Iterator[None]:
    with patched((ClusterClock, "append_us", lambda self: self.wall())):
        yield


@mutation("R18", "cold starts")
def a_broker_leads_before_it_knows_the_time() -> Iterator[None]:
    with patched((BrokerPartitionHost, "awaits_time", lambda self, replica: False)):
        yield


@uncaught("R18", "cold starts")
def of_two_clocks_that_disagree_the_earlier_one_is_believed_at_once() -> Iterator[None]:
    """Append time never goes back, so only the first record of a new log shows the bug, in the time between
    the second broker's heartbeat and the third's. `tests/metadata/test_clocks.py` catches it."""
    with patched((clocks, "AGREE_US", 1 << 62)):
        yield


@mutation("R19", "old volumes")
def a_volume_that_was_put_back_is_counted_until_it_is_taken() -> Iterator[None]:
    """The controller refuses the volume, and each start increases its count of starts."""
    with patched((assembly, "put_back", _never), (control_neighbours, "put_back", _never)):
        yield


@mutation("R19", "old volumes")
def a_voter_with_a_volume_that_was_put_back_votes() -> Iterator[None]:
    """Seed 7670 showed this bug before it became a mutation: the log lacks acknowledged entries."""
    with patched((control_neighbours, "put_back", _never)):
        yield


@mutation("R19", "old volumes")
def a_volume_that_was_put_back_is_taken() -> Iterator[None]:
    with patched(*((module, "put_back", _never) for module in (assembly, registration, control_neighbours))):
        yield
