"""Bugs in the client library: sequences that are used twice, answers that are taken for others (R8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog import _lane
from tidelog._lane import Failed, Lane
from tidelog.errors import DuplicateSequence, TidelogError


@uncaught("R8", "small ISRs")
def a_batch_in_doubt_is_sent_again_with_other_sequences() -> Iterator[None]:
    def renumber(self: Lane) -> None:
        if self.idempotent:
            self._next_free += 1000
        again(self)
        for batch in self._waiting:
            if self.idempotent:
                batch.brand(*self.identity, self._next_free)
                self._next_free = _lane._after(batch)

    again = Lane._renumber
    with patched((Lane, "_renumber", renumber)):
        yield


@uncaught("R8", "unanswered")
def sequences_of_what_was_given_up_are_used_again() -> Iterator[None]:
    def give_up(self: Lane, batch: Any, error: TidelogError) -> list[Failed]:
        return [Failed(batch, _lane._doubt_of(batch, error))]

    with patched((Lane, "_give_up", give_up)):
        yield


@mutation("R8", "unanswered")
def what_is_in_doubt_goes_again_under_another_producer_id() -> Iterator[None]:
    def adopt(self: Lane, identity: Any) -> list[Failed]:
        self.identity = identity
        self.identity_spent = False
        self._next_free, self._landed = 0, -1
        for batch in (*self._returned, *self._waiting):
            batch.doubt = None
        return []

    with patched((Lane, "adopt", adopt)):
        yield


@mutation("R8", "unanswered")
def a_definite_refusal_is_believed_of_what_may_have_landed() -> Iterator[None]:
    """Its sequences go to the next batch, which then passes for a repeat of it."""

    def never(self: Lane, batch: Any, error: TidelogError) -> list[Failed]:
        self._gap = batch.number if self._gap is None else min(self._gap, batch.number)
        return [Failed(batch, error)]

    with patched((Lane, "_never", never)):
        yield


@uncaught("R8", "unanswered")
def a_receipt_takes_sequences_back() -> Iterator[None]:
    """One that answers an earlier batch late counts as the newest."""

    def is_there(self: Lane, batch: Any) -> None:
        if self.idempotent:
            self._landed, self._next_free = batch.number, _lane._after(batch)

    with patched((Lane, "_is_there", is_there)):
        yield


@mutation("R8", "unanswered")
def nothing_is_learnt_from_a_receipt() -> Iterator[None]:
    """The next batch after a quiet time has sequences that were used."""

    def is_there(self: Lane, batch: Any) -> None:
        if self.idempotent and batch.number > self._landed:
            self._landed, self._next_free = batch.number, batch.base_sequence

    with patched((Lane, "_is_there", is_there)):
        yield


@mutation("R8", "unanswered")
def what_was_lost_with_a_connection_counts_as_never_sent() -> Iterator[None]:
    """Batches that may have landed are numbered anew."""

    def broken(self: Lane, written: set[int], error: TidelogError) -> list[Failed]:
        return lost(self, set(), error)

    lost = Lane.broken
    with patched((Lane, "broken", broken)):
        yield


@uncaught("R8", "unanswered")
def a_duplicate_sequence_counts_as_success_of_another_batch() -> Iterator[None]:
    def refused(self: Lane, batch: Any, error: TidelogError) -> list[Failed]:
        if isinstance(error, DuplicateSequence):
            self._inflight.pop(batch.number, None)
            self._hold(error)
            return [Failed(batch, error)]
        return refuse(self, batch, error)

    refuse = Lane.refused
    with patched((Lane, "refused", refused)):
        yield


@uncaught("10", "unanswered")
def a_client_goes_on_behind_an_error_at_once() -> Iterator[None]:
    """Batches that follow a refused one are sent before it goes again."""

    def hold(self: Lane, error: TidelogError) -> None:
        hold_back(self, error)
        self.held = False

    hold_back = Lane._hold
    with patched((Lane, "_hold", hold)):
        yield
