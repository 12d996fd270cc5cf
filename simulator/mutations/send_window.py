"""Bugs in the client library: sequences that are used twice, answers that are taken for others (R8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog._producing import send_window as _send_window
from tidelog._producing.send_window import Failed, SendWindow
from tidelog.errors import DuplicateSequence, TidelogError
from tidelog.model import PipelineOrder


@mutation("R8", "unanswered")
def a_batch_in_doubt_is_sent_again_with_other_sequences() -> Iterator[None]:
    """Those behind it: where it has landed, it lands once more."""

    def renumber(self: SendWindow) -> None:
        again(self)
        if self.idempotent and self._waiting and self._waiting[0].doubt is not None:
            for batch in self._waiting:
                batch.brand(*self.identity, _send_window._after(batch))

    again = SendWindow._renumber
    with patched((SendWindow, "_renumber", renumber)):
        yield


@uncaught("R8", "unanswered")
def what_expires_unsent_speaks_for_what_is_sent_later() -> Iterator[None]:
    """Chaos showed it under heavy load. It wants three things within a second: a batch that expires while
    the window goes on, one that is sent after it and whose answer gets lost, and its own delivery timeout
    before it goes again. `tests/client/test_send_window.py` catches it: its dumb broker answers slowly."""

    def expire(self: SendWindow, now: float) -> list[Failed]:
        late = [batch.number for batch in self._waiting if batch.deadline <= now and batch.doubt is None]
        failed = again(self, now)
        if late and self.idempotent and not self.held:
            self._gap = min(late)
        return failed

    again = SendWindow.expire
    with patched((SendWindow, "expire", expire)):
        yield


@mutation("R8", "unanswered")
def sequences_of_what_was_given_up_are_used_again() -> Iterator[None]:
    def give_up(self: SendWindow, batch: Any, error: TidelogError) -> list[Failed]:
        return [Failed(batch, _send_window._doubt_of(batch, error))]

    with patched((SendWindow, "_give_up", give_up)):
        yield


@mutation("R8", "unanswered")
def what_is_in_doubt_goes_again_under_another_producer_id() -> Iterator[None]:
    def adopt(self: SendWindow, identity: Any) -> list[Failed]:
        self.identity = identity
        self.identity_spent = False
        self._next_free, self._landed = 0, -1
        for batch in (*self._returned, *self._waiting):
            batch.doubt = None
        return []

    with patched((SendWindow, "adopt", adopt)):
        yield


@mutation("R8", "unanswered")
def a_definite_refusal_is_believed_of_what_may_have_landed() -> Iterator[None]:
    """Its sequences go to the next batch, which then passes for a repeat of it."""

    def never(self: SendWindow, batch: Any, error: TidelogError) -> list[Failed]:
        self._gap = batch.number if self._gap is None else min(self._gap, batch.number)
        return [Failed(batch, error)]

    with patched((SendWindow, "_never", never)):
        yield


@mutation("R8", "unanswered")
def nothing_is_learnt_from_a_receipt() -> Iterator[None]:
    """The next batch after a quiet time has sequences that were used."""

    def is_there(self: SendWindow, batch: Any) -> None:
        if self.idempotent and batch.number > self._landed:
            self._landed, self._next_free = batch.number, batch.base_sequence

    with patched((SendWindow, "_is_there", is_there)):
        yield


@mutation("R8", "unanswered")
def what_was_lost_with_a_connection_counts_as_never_sent() -> Iterator[None]:
    """Batches that may have landed are numbered again."""

    def broken(self: SendWindow, written: set[int], error: TidelogError) -> list[Failed]:
        return lost(self, set(), error)

    lost = SendWindow.broken
    with patched((SendWindow, "broken", broken)):
        yield


@uncaught("R8", "unanswered")
def a_duplicate_sequence_counts_as_success_of_another_batch() -> Iterator[None]:
    """That answer needs a repeat of a batch behind which five others have landed. A producer that repeats has
    no more than five on their way, and goes on behind them only when all have their answers.
    `tests/client/test_send_window.py` has what follows from it."""

    def refused(self: SendWindow, batch: Any, error: TidelogError) -> list[Failed]:
        if isinstance(error, DuplicateSequence):
            self._inflight.pop(batch.number, None)
            self._hold(error)
            return [Failed(batch, error)]
        return refuse(self, batch, error)

    refuse = SendWindow.refused
    with patched((SendWindow, "refused", refused)):
        yield


@uncaught("10", "unanswered")
def a_client_goes_on_behind_an_error_at_once() -> Iterator[None]:
    """Harmless by itself: what comes behind a refused batch is refused by the broker, too, until the client
    says that it goes on. Both broken together is `what is behind a refused batch overtakes it`."""

    def hold(self: SendWindow, error: TidelogError) -> None:
        hold_back(self, error)
        self.held = False

    hold_back = SendWindow._hold
    with patched((SendWindow, "_hold", hold)):
        yield


@uncaught("R7", "minima")
def what_is_behind_a_refused_batch_overtakes_it() -> Iterator[None]:
    """Neither does the client wait until it has gone again, nor the broker refuse what comes meanwhile.
    No seed has shown that yet: who is refused here has nothing else on its way."""

    def hold(self: SendWindow, error: TidelogError) -> None:
        hold_back(self, error)
        self.held = bool(self.identity_spent)

    hold_back = SendWindow._hold
    with patched(
        (SendWindow, "_hold", hold),
        (PipelineOrder, "check", lambda self, *, reset: None),
    ):
        yield
