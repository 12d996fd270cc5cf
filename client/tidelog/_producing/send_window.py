"""One partition of a producer: what waits, what is in flight, which sequences (R8). No I/O.

A send window is told what happened and answers which batches that finishes. Its promises:

- Batches go out in order, at most `inflight_max` unanswered.
- After an error nothing more goes out until everything in flight is answered; then the
  unacknowledged ones go again, in order, the first with ``reset``.
- A batch that may have landed is only ever sent again with the same sequences. If that
  cannot help any more, its result is the indefinite error, never a definite one.
- A batch that certainly did not land gives its sequences to the next one.

By the broker's check of sequences a batch cannot land unless the one before it has. So a
batch that certainly did not land clears the doubts about all batches behind it.
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


class ProducerIdentity(NamedTuple):
    """What makes a producer's batches recognisable."""

    producer_id: int
    producer_epoch: int


ANONYMOUS = ProducerIdentity(NO_PRODUCER_ID, 0)
"""Not idempotent: no sequences."""


class Failed(NamedTuple):
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

    def __init__(self, partition: int, identity: ProducerIdentity, inflight_max: int) -> None:
        self.partition = partition
        self.identity = identity
        self.inflight_max = inflight_max
        """Batches that may be unanswered."""
        self.held = True
        """Nothing goes out: no connection yet, or an error is being dealt with."""
        self.reset_next = False
        self.identity_spent = False
        """The producer id is of no more use here; `adopt` another one."""
        self.failures_in_a_row = 0
        self.last_error: TidelogError | None = None
        self._next_free = 0
        """The sequence after the last record that is known to be in the log."""
        self._landed = -1
        """The last batch that is known to be there, by number. One behind a batch in doubt may be: then that
        one is there too, and only its answer is missing."""
        self._gap: int | None = None
        """The first batch since `release` that was dropped and never landed, by number."""
        self._waiting: deque[Batch] = deque()
        self._inflight: dict[int, Batch] = {}
        """By `Batch.number`, in the order of sending."""
        self._returned: list[Batch] = []
        """Answered with an error that a repetition may mend."""

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
        """Whether a batch pushed now would go out at once."""
        return not self.held and not self._waiting and len(self._inflight) < self.inflight_max

    @property
    def settled(self) -> bool:
        """Held, and nothing is in flight any more: what came back may be sorted out."""
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

    # --- on the way out

    def push(self, batch: Batch) -> None:
        """Adds a batch; its data may bear `identity` and `next_sequence` already."""
        batch.brand(*self.identity, self.next_sequence())
        self._waiting.append(batch)

    def take(self) -> Batch:
        """The next batch to send."""
        assert self.ready
        batch = self._waiting.popleft()
        self._inflight[batch.number] = batch
        return batch

    # --- what came of it

    def acknowledged(self, batch: Batch) -> None:
        if self._inflight.pop(batch.number, None) is None:
            return
        self.failures_in_a_row = 0
        self._is_there(batch)

    def refused(self, batch: Batch, error: TidelogError) -> list[Failed]:
        """An error answered `batch`: the window is held; batches that can be repeated stay in it."""
        if self._inflight.pop(batch.number, None) is None:
            return []
        self._hold(error)
        batch.last_error = error
        if isinstance(error, DuplicateSequence):
            # In the log, at an offset that nobody knows any more: its sequences are used.
            self._is_there(batch)
            return [Failed(batch, batch.doubt or error)]
        if not error.definite:
            return self._in_doubt(batch, error)
        first = not self._returned and not any(number < batch.number for number in self._inflight)
        if isinstance(error, UnknownProducer) or (isinstance(error, OutOfOrderSequence) and first):
            # Sequences cannot go on here. Without a doubt the batch may start again under
            # another id, at 0; with one it may be in the log already (R8).
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
        """The connection is gone: the batches `written` (by number) may have landed, the others not."""
        failed: list[Failed] = []
        inflight, self._inflight = list(self._inflight.values()), {}
        self._hold(error)
        # What ended the call may be definite about itself; it says nothing of what was under way.
        doubt = ConnectionLost(error.message) if error.definite else error
        for batch in inflight:
            batch.last_error = error
            if batch.number in written:
                failed += self._in_doubt(batch, doubt)
            else:
                self._returned.append(batch)
        return failed

    def expire(self, now: float) -> list[Failed]:
        """Fails what is past its deadline.

        What is in flight stays in the window, failed, until its answer tells what became
        of its sequences.
        """
        failed: list[Failed] = []
        for batch in self._inflight.values():
            if batch.deadline <= now and batch.failure is None:
                late = TimedOut(f"no answer to a batch of {batch.count} records within the delivery timeout")
                failed.append(Failed(batch, batch.doubt or late))
        late_ones = [batch for batch in (*self._returned, *self._waiting) if batch.deadline <= now]
        for batch in late_ones:
            error = batch.last_error or self.last_error
            if error is None or not error.definite:
                error = Unavailable("not sent")
            final = type(error)(f"not delivered within the delivery timeout; the last failure: {error}")
            final.details.update(error.details)
            self._remove(batch)
            failed += self._never(batch, final)
        if late_ones and not self.held:
            # Nothing was sent behind them, and what is sent from now on closes the gap.
            self._renumber()
            self._gap = None
        return failed

    def fail_all(self, error: TidelogError) -> list[Failed]:
        """Everything in the window fails; what may have landed with its indefinite error."""
        batches = [*self._inflight.values(), *self._returned, *self._waiting]
        sent = set(self._inflight)
        self._inflight, self._returned = {}, []
        self._waiting.clear()
        self.held = True
        failed = []
        for batch in batches:
            doubt = batch.doubt
            if doubt is None and batch.number in sent:
                doubt = TimedOut(f"given up while a batch of {batch.count} records was in flight: {error}")
            failed.append(Failed(batch, doubt or error))
            if doubt is not None and self.idempotent:
                # Its sequences may be used: another batch with them would pass for a repeat.
                self.identity_spent = True
        return failed

    # --- and again

    def adopt(self, identity: ProducerIdentity) -> list[Failed]:
        """A new producer id, from sequence 0, after the old one was of no more use.

        What may have landed under the old one cannot be repeated under the new one.
        """
        assert self.settled
        self._clear_impossible_doubts()
        doubtful = [batch for batch in (*self._returned, *self._waiting) if batch.doubt is not None]
        for batch in doubtful:
            self._remove(batch)
        self.identity = identity
        self.identity_spent = False
        self._next_free, self._landed = 0, -1
        error = UnknownProducer("the producer id could not be used any longer")
        return [Failed(batch, _doubt_of(batch, error)) for batch in doubtful]

    def release(self, *, reset: bool) -> None:
        """Goes on after an error: what came back goes first, in order."""
        assert self.settled
        assert not self.identity_spent
        self._renumber()
        self._gap = None
        self.held = False
        self.reset_next = reset

    def noted(self, error: TidelogError) -> None:
        """Another attempt to get going failed."""
        self.failures_in_a_row += 1
        self.last_error = error

    # ---

    def _is_there(self, batch: Batch) -> None:
        """It is in the log, and so is what was sent before it (R8)."""
        if self.idempotent and batch.number > self._landed:
            self._landed, self._next_free = batch.number, _after(batch)

    def _hold(self, error: TidelogError) -> None:
        if not self.held:
            self.failures_in_a_row += 1
            self.last_error = error
        self.held = True

    def _in_doubt(self, batch: Batch, error: TidelogError) -> list[Failed]:
        if self._gap is not None and batch.number > self._gap and batch.failure is None:
            # Sent behind a batch that never landed, so refused if it arrived at all.
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
        """`batch` is not sent again."""
        if batch.doubt is not None:
            return self._give_up(batch, error)
        if self.idempotent:
            self._gap = batch.number if self._gap is None else min(self._gap, batch.number)
        return [Failed(batch, error)]

    def _give_up(self, batch: Batch, error: TidelogError) -> list[Failed]:
        """`batch` may have landed and nobody will know: its sequences block this id."""
        if self.idempotent:
            self.identity_spent = True
            self.held = True
        return [Failed(batch, _doubt_of(batch, error))]

    def _clear_impossible_doubts(self) -> None:
        """No batch can have landed behind one that certainly did not."""
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
        """Everything unsent in order, without gaps in the sequences. Doubtful ones keep theirs."""
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
            # Behind a batch that is there go the sequences behind it, whatever is sent again before it.
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
