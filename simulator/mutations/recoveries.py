"""Bugs in the forced recovery of the metadata from one voter (M2a)."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker.core.raft.history import Relation
from tidelog_broker.offline import quorum_recovery
from tidelog_broker.quorum import producer_id_blocks
from tidelog_broker.quorum import transport as control_neighbours


@mutation("M2a", "recoveries")
def a_forced_recovery_raises_no_leader_epochs() -> Iterator[None]:
    with patched((quorum_recovery, "EPOCH_STRIDE", 0)):
        yield


@uncaught("M2a", "recoveries")
def a_forced_recovery_gives_out_producer_ids_again() -> Iterator[None]:
    """The forgotten entries would have to contain ids of a client, and hardly any client begins just then.
    `tests/quorum/test_forced_recovery.py` catches it."""
    with patched((quorum_recovery, "PRODUCER_ID_STRIDE", 0), (producer_id_blocks, "PRODUCER_ID_BLOCK", 1)):
        yield


@mutation("M2a", "recoveries")
def a_forced_recovery_goes_on_in_the_term_of_before() -> Iterator[None]:
    with patched((quorum_recovery, "TERM_STRIDE", 0)):
        yield


@mutation("M2a", "recoveries")
def brokers_of_an_earlier_history_are_let_in() -> Iterator[None]:
    with patched((control_neighbours, "relation", lambda mine, theirs: Relation.SAME)):
        yield
