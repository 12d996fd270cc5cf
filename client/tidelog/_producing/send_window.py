"""The batches of one partition that wait or are in flight, and their sequences (R8). No I/O.

`Sender` tells the send window what happened; the window returns the batches that have failed. Its promises:

- Batches are sent in order, at most `inflight_max` are unanswered.
- After an error no batch is sent until every batch in flight is answered. Then the unacknowledged
  batches are sent again, in order, the first with ``reset``.
- A batch that may be in the log ("has landed") is only sent again with the same sequences. If that is no
  longer possible, its result is the indefinite error, never a definite one.
- A batch that certainly did not land gives its sequences to the next batch.

The broker checks sequences, so a batch cannot land unless the batch before it has. Therefore a batch that
certainly did not land clears the doubts about all batches behind it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidelog._producing.batching import Batch
from tidelog.errors import (
    ConnectionLost,
    DuplicateSequence,
    OutOfOrderSequence,
    TidelogError,
    TimedOut,
    Unavailable,
    UnknownProducer,
)
from tidelog.records import NO_PRODUCER_ID
from tidelog.records.layout import SEQUENCE_MODULUS
from tidelog.wording import count_of


class ProducerIdentity(NamedTuple):
    """The id and epoch by which brokers recognise the batches of a producer."""

    producer_id: int
    producer_epoch: int


ANONYMOUS = ProducerIdentity(NO_PRODUCER_ID, 0)
"""Not idempotent: no sequences."""


class Failed(NamedTuple):
    """A batch that will not be acknowledged, and the error for its callers."""

    batch: Batch
    error: TidelogError


class SendWindow:
    """The unacknowledged batches of one partition."""

    __slots__ = (
        "_gap",
        "_inflight",
        "_landed",
        "_next_free",
        "_returned",
        "_waiting",
        "failures_in_a_row",
        "held",
        "identity",
        "identity_spent",
        "inflight_max",
        "last_error",
        "partition",
        "reset_next",
    )

    def __init__(
        self, partition: int, identity: ProducerIdentity, inflight_max: int, first_sequence: int = 0
    ) -> None:
        """`first_sequence`: of the first batch, if earlier ones of this identity are in the log."""
        self.partition = partition
        self.identity = identity
        self.inflight_max = inflight_max
        """Batches that may be unanswered."""
        self.held = True
        """No batch may be sent: there is no connection yet, or an error is being handled."""
        self.reset_next = False
        self.identity_spent = False
        """The producer id can no longer be used for this partition; `adopt` another one."""
        self.failures_in_a_row = 0
        self.last_error: TidelogError | None = None
        self._next_free = first_sequence
        """The sequence behind the last record that is known to be in the log."""
        self._landed = -1
        """The number of the last batch that is known to be in the log. A batch in doubt before it is in the
        log, too, and only its answer is missing."""
        self._gap: int | None = None
        """The number of the first batch since `release` that was dropped and did not land."""
        self._waiting: deque[Batch] = deque()
        self._inflight: dict[int, Batch] = {}
        """By `Batch.number`, in the order of sending."""
        self._returned: list[Batch] = []
        """Batches that were answered with an error and will be sent again."""

    def __repr__(self) -> str:
        held = " held" if self.held else ""
        return f"<SendWindow {self.partition} inflight={len(self._inflight)} waiting={self.unsent}{held}>"

    @property
    def idempotent(self) -> bool:
        return self.identity != ANONYMOUS

    @property
    def inflight(self) -> int:
        return len(self._inflight)

    @property
    def unsent(self) -> int:
        return len(self._waiting) + len(self._returned)

    @property
    def idle(self) -> bool:
        return not (self._inflight or self._waiting or self._returned)

    @property
    def ready(self) -> bool:
        """Whether `take` has something to send."""
        return bool(self._waiting) and not self.held and len(self._inflight) < self.inflight_max

    @property
    def open(self) -> bool:
        """Whether a batch that is pushed now is sent at once."""
        return not self.held and not self._waiting and len(self._inflight) < self.inflight_max

    @property
    def settled(self) -> bool:
        """Held, and nothing is in flight: the returned batches can be put in order."""
        return self.held and not self._inflight

    @property
    def repeats_after(self) -> TidelogError | None:
        """The last failure, if batches wait here to be sent again after it."""
        return self.last_error if self.failures_in_a_row and not self.idle else None

    def next_sequence(self) -> int:
        """The sequence that the next pushed batch gets."""
        if not self.idempotent:
            return 0
        sent = (*self._returned, *self._inflight.values())
        if not (self._waiting or sent):
            return self._next_free
        last = self._waiting[-1] if self._waiting else max(sent, key=_number)
        return self._next_free if last.number < self._landed else _after(last)

    # --- sending

    def push(self, batch: Batch) -> None:
        """Adds a batch. Its data may have `identity` and `next_sequence` already."""
        batch.brand(*self.identity, self.next_sequence())
        self._waiting.append(batch)

    def take(self) -> Batch:
        """The next batch to send."""
        assert self.ready
        batch = self._waiting.popleft()
        self._inflight[batch.number] = batch
        return batch

    # --- answers

    def acknowledged(self, batch: Batch) -> None:
        """The broker answered with a receipt."""
        if self._inflight.pop(batch.number, None) is None:
            return
        self.failures_in_a_row = 0
        self._is_there(batch)

    def refused(self, batch: Batch, error: TidelogError) -> list[Failed]:
        """The broker answered with an error: the window is held; batches that can be repeated stay in it."""
        if self._inflight.pop(batch.number, None) is None:
            return []
        self._hold(error)
        batch.last_error = error
        if isinstance(error, DuplicateSequence):
            # It is in the log, at an unknown offset: its sequences are used.
            self._is_there(batch)
            return [Failed(batch, batch.doubt or error)]
        if not error.definite:
            return self._in_doubt(batch, error)
        first = not self._returned and not any(number < batch.number for number in self._inflight)
        if isinstance(error, UnknownProducer) or (isinstance(error, OutOfOrderSequence) and first):
            # The sequences cannot continue. A batch without doubt may be sent under another id, from
            # sequence 0; a batch in doubt may be in the log already (R8).
            self.identity_spent = True
            if batch.doubt is None and batch.failure is None:
                self._returned.append(batch)
                return []
            return self._never(batch, error)
        if error.retriable and batch.failure is None:
            self._returned.append(batch)
            return []
        return self._never(batch, error)

    def broken(self, written: set[int], error: TidelogError) -> list[Failed]:
        """The connection broke: the batches `written` (by number) may have landed, the others have not."""
        failed: list[Failed] = []
        inflight, self._inflight = list(self._inflight.values()), {}
        self._hold(error)
        # The error may be definite for the call, but it says nothing about the batches in flight.
        doubt = ConnectionLost(error.message) if error.definite else error
        for batch in inflight:
            batch.last_error = error
            if batch.number in written:
                failed += self._in_doubt(batch, doubt)
            else:
                self._returned.append(batch)
        return failed

    def expire(self, now: float) -> list[Failed]:
        """Fails the batches that are past their deadline.

        A batch in flight stays in the window, failed, until its answer shows whether its sequences are
        used.
        """
        failed: list[Failed] = []
        for batch in self._inflight.values():
            if batch.deadline <= now and batch.failure is None:
                late = TimedOut(
                    f"no answer to a batch of {count_of(batch.count, 'record')} came within the delivery "
                    f"timeout"
                )
                failed.append(Failed(batch, batch.doubt or late))
        late_ones = [batch for batch in (*self._returned, *self._waiting) if batch.deadline <= now]
        for batch in late_ones:
            error = batch.last_error or self.last_error
            if error is None or not error.definite:
                error = Unavailable("no leader was reached")
            final = type(error)(
                f"the batch was not delivered within the delivery timeout; the last failure: {error}"
            )
            final.details.update(error.details)
            self._remove(batch)
            failed += self._never(batch, final)
        if late_ones and not self.held:
            # No batch behind them was sent, and the next batch that is sent closes the gap.
            self._renumber()
            self._gap = None
        return failed

    def fail_all(self, error: TidelogError) -> list[Failed]:
        """Fails all batches in the window; those that may have landed with their indefinite error."""
        batches = [*self._inflight.values(), *self._returned, *self._waiting]
        sent = set(self._inflight)
        self._inflight, self._returned = {}, []
        self._waiting.clear()
        self.held = True
        failed = []
        for batch in batches:
            doubt = batch.doubt
            if doubt is None and batch.number in sent:
                doubt = TimedOut(
                    f"the producer stopped while a batch of {count_of(batch.count, 'record')} was in flight: "
                    f"{error}"
                )
            failed.append(Failed(batch, doubt or error))
            if doubt is not None and self.idempotent:
                # Its sequences may be used: the broker would take another batch with them for a repeat.
                self.identity_spent = True
        return failed

    # --- after an error

    def adopt(self, identity: ProducerIdentity) -> list[Failed]:
        """Takes a new producer id, from sequence 0, when the old one can no longer be used.

        A batch that may have landed under the old id cannot be repeated under the new one: it fails.
        """
        assert self.settled
        self._clear_impossible_doubts()
        doubtful = [batch for batch in (*self._returned, *self._waiting) if batch.doubt is not None]
        for batch in doubtful:
            self._remove(batch)
        self.identity = identity
        self.identity_spent = False
        self._next_free, self._landed = 0, -1
        error = UnknownProducer("the producer id can no longer be used")
        return [Failed(batch, _doubt_of(batch, error)) for batch in doubtful]

    def release(self, *, reset: bool) -> None:
        """Continues after an error: the returned batches are sent first, in order."""
        assert self.settled
        assert not self.identity_spent
        self._renumber()
        self._gap = None
        self.held = False
        self.reset_next = reset

    def noted(self, error: TidelogError) -> None:
        """Counts another failed attempt to reach the leader."""
        self.failures_in_a_row += 1
        self.last_error = error

    # --- state

    def _is_there(self, batch: Batch) -> None:
        """The batch is in the log, and so are the batches that were sent before it (R8)."""
        if self.idempotent and batch.number > self._landed:
            self._landed, self._next_free = batch.number, _after(batch)

    def _hold(self, error: TidelogError) -> None:
        if not self.held:
            self.failures_in_a_row += 1
            self.last_error = error
        self.held = True

    def _in_doubt(self, batch: Batch, error: TidelogError) -> list[Failed]:
        if self._gap is not None and batch.number > self._gap and batch.failure is None:
            # It was sent behind a batch that did not land, so the broker refused it if it arrived.
            self._returned.append(batch)
            return []
        batch.doubt = error
        if batch.failure is not None:
            return self._give_up(batch, error)
        if self.idempotent:
            self._returned.append(batch)
            return []
        return [Failed(batch, error)]

    def _never(self, batch: Batch, error: TidelogError) -> list[Failed]:
        """`batch` will not be sent again."""
        if batch.doubt is not None:
            return self._give_up(batch, error)
        if self.idempotent:
            self._gap = batch.number if self._gap is None else min(self._gap, batch.number)
        return [Failed(batch, error)]

    def _give_up(self, batch: Batch, error: TidelogError) -> list[Failed]:
        """`batch` may have landed, and this stays unknown: its sequences make this producer id unusable."""
        if self.idempotent:
            self.identity_spent = True
            self.held = True
        return [Failed(batch, _doubt_of(batch, error))]

    def _clear_impossible_doubts(self) -> None:
        """Clears the doubts about batches behind a batch that certainly did not land."""
        gap = self._gap
        for batch in sorted((*self._returned, *self._waiting), key=_number):
            if gap is not None and batch.number > gap:
                batch.doubt = None
            elif batch.doubt is None:
                gap = batch.number

    def _remove(self, batch: Batch) -> None:
        if batch in self._returned:
            self._returned.remove(batch)
        else:
            self._waiting.remove(batch)

    def _renumber(self) -> None:
        """Puts all unsent batches in order, without gaps in the sequences. Batches in doubt keep theirs."""
        self._clear_impossible_doubts()
        self._waiting = deque(sorted((*self._returned, *self._waiting), key=_number))
        self._returned = []
        if not self.idempotent:
            return
        sequence = self._next_free
        if self._inflight:
            last = max(self._inflight.values(), key=_number)
            sequence = _after(last) if last.number > self._landed else self._next_free
        for batch in self._waiting:
            if batch.doubt is None:
                batch.brand(*self.identity, sequence)
            # The sequences continue behind the last batch in the log, also if a batch before it is repeated.
            sequence = _after(batch) if batch.number > self._landed else self._next_free


def _number(batch: Batch) -> int:
    return batch.number


def _after(batch: Batch) -> int:
    """The sequence of the record that follows `batch`."""
    return (batch.base_sequence + batch.count) % SEQUENCE_MODULUS


def _doubt_of(batch: Batch, error: TidelogError) -> TidelogError:
    doubt = batch.doubt
    assert doubt is not None
    if doubt is not error and doubt.__cause__ is None:
        doubt.__cause__ = error
    return doubt
