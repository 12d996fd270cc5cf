"""The window by itself, and against a dumb broker that keeps R8's rules while everything fails."""

import random

import pyarrow as pa
import pytest

from tidelog import errors
from tidelog._producing.batching import Batch
from tidelog._producing.send_window import ANONYMOUS, Failed, ProducerIdentity, SendWindow
from tidelog.records import BatchHeader, encode_batch, to_columns
from tidelog.records.layout import SEQUENCE_MODULUS

ID = ProducerIdentity(7, 0)
COLUMNS = to_columns(pa.record_batch({"value": pa.array([b"v"] * 3, pa.binary())}), now_us=1)
DATA = encode_batch(COLUMNS)


class Numbers:
    def __init__(self) -> None:
        self.next = 0

    def batch(self, deadline: float = 1e9) -> Batch:
        self.next += 1
        return Batch(DATA, 3, number=self.next, partition=0, deadline=deadline)


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


def window_with(
    numbers: Numbers, count: int, identity: ProducerIdentity = ID, inflight_max: int = 5
) -> tuple[SendWindow, list[Batch]]:
    """A window that has sent `count` batches."""
    window = SendWindow(0, identity, inflight_max)
    batches = [numbers.batch() for _ in range(count)]
    for batch in batches:
        window.push(batch)
    window.release(reset=False)
    for _ in range(min(count, inflight_max)):
        window.take()
    return window, batches


def test_batches_bear_consecutive_sequences_and_valid_checksums(numbers: Numbers) -> None:
    _, batches = window_with(numbers, 3)
    headers = [BatchHeader.unpack(batch.data) for batch in batches]
    assert [header.base_sequence for header in headers] == [0, 3, 6]
    assert {header.producer_id for header in headers} == {7}
    for batch in batches:
        whole = encode_batch(COLUMNS, producer_id=7, base_sequence=batch.base_sequence)
        assert batch.data == whole


def test_no_more_than_the_window_is_in_flight(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 7)
    assert window.inflight == 5
    assert not window.ready
    window.acknowledged(batches[0])
    assert window.ready


def test_sequences_wrap_around(numbers: Numbers) -> None:
    window = SendWindow(0, ID, 5)
    window._next_free = SEQUENCE_MODULUS - 2
    window.push(numbers.batch())
    window.push(numbers.batch())
    assert [batch.base_sequence for batch in window._waiting] == [SEQUENCE_MODULUS - 2, 1]


def test_after_an_error_nothing_goes_out_until_all_is_answered_and_then_in_order(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 3)
    assert window.refused(batches[0], errors.NotEnoughReplicas("too few")) == []
    assert window.held
    assert not window.settled
    for batch in batches[1:]:
        assert window.refused(batch, errors.PrecedingFailed("after")) == []
    assert window.settled
    window.release(reset=True)
    assert window.reset_next
    assert [window.take() for _ in range(3)] == batches


def test_a_batch_that_never_landed_leaves_its_sequences_to_the_next(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 3)
    [failed] = window.refused(batches[0], errors.InvalidTimestamp("future"))
    assert failed == Failed(batches[0], failed.error)
    for batch in batches[1:]:
        window.refused(batch, errors.PrecedingFailed("after"))
    window.release(reset=True)
    assert [window.take().base_sequence for _ in range(2)] == [0, 3]


def test_an_indefinite_error_is_repeated_with_the_same_sequences(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 2)
    assert window.broken({1, 2}, errors.ConnectionLost("gone")) == []
    window.release(reset=False)
    assert [(window.take(), batch.base_sequence) for batch in batches] == [(batches[0], 0), (batches[1], 3)]


def test_what_is_sent_behind_a_receipt_never_bears_the_sequences_of_what_it_told_of(numbers: Numbers) -> None:
    """A receipt may come behind a batch in doubt: the log has both, and the first is sent again."""
    window, batches = window_with(numbers, 3)
    window.refused(batches[0], errors.TimedOut("not committed in time; it may be later"))
    window.acknowledged(batches[1])
    window.refused(batches[2], errors.PrecedingFailed("after"))
    window.release(reset=True)
    assert [batch.base_sequence for batch in window._waiting] == [0, 6]
    for batch in (batches[0], batches[2]):
        window.take()
        window.acknowledged(batch)
    assert window.next_sequence() == 9


def test_a_repeat_of_what_stands_before_a_receipt_takes_no_sequence_back(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 2)
    window.refused(batches[0], errors.TimedOut("not committed in time; it may be later"))
    window.acknowledged(batches[1])
    window.release(reset=True)
    assert window.next_sequence() == 6
    window.take()
    window.acknowledged(batches[0])
    assert window.next_sequence() == 6


@pytest.mark.parametrize("identity", [ID, ANONYMOUS], ids=["idempotent", "plain"])
def test_what_ends_a_call_definitely_leaves_what_was_written_in_doubt(
    numbers: Numbers, identity: ProducerIdentity
) -> None:
    window, batches = window_with(numbers, 2, identity)
    failed = window.broken({batches[0].number}, errors.ResourceExhausted("too many partitions in one call"))
    failed += window.expire(1e9)
    assert [failure.error.definite for failure in failed] == [False, True]


def test_without_idempotence_what_was_written_fails_and_what_was_not_goes_again(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 2, ANONYMOUS)
    lost = errors.ConnectionLost("gone")
    assert window.broken({1}, lost) == [Failed(batches[0], lost)]
    window.release(reset=False)
    assert window.take() is batches[1]


def test_unknown_producer_begins_again_under_a_new_id_if_nothing_can_have_landed(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 2)
    window._next_free = 0
    assert window.refused(batches[0], errors.UnknownProducer("who?")) == []
    assert window.refused(batches[1], errors.PrecedingFailed("after")) == []
    assert window.identity_spent
    assert window.adopt(ProducerIdentity(8, 0)) == []
    window.release(reset=True)
    header = BatchHeader.unpack(window.take().data)
    assert (header.producer_id, header.base_sequence) == (8, 0)


def test_unknown_producer_after_a_doubtful_attempt_is_reported_as_indefinite(numbers: Numbers) -> None:
    window, batches = window_with(numbers, 3)
    window.broken({1, 2}, errors.ConnectionLost("gone"))
    window.release(reset=False)
    for _ in range(3):
        window.take()
    [first] = window.refused(batches[0], errors.UnknownProducer("who?"))
    assert not first.error.definite
    assert isinstance(first.error.__cause__, errors.UnknownProducer)
    for batch in batches[1:]:
        window.refused(batch, errors.PrecedingFailed("after"))
    [second] = window.adopt(ProducerIdentity(8, 0))
    assert second.batch is batches[1]
    assert not second.error.definite
    window.release(reset=True)
    assert window.take() is batches[2]
    assert batches[2].base_sequence == 0


def test_a_deadline_before_sending_is_a_definite_failure(numbers: Numbers) -> None:
    window = SendWindow(0, ID, 5)
    late, early = numbers.batch(deadline=10), numbers.batch(deadline=20)
    window.push(late)
    window.push(early)
    [failed] = window.expire(10)
    assert failed.batch is late
    assert failed.error.definite
    window.release(reset=False)
    assert window.take() is early
    assert early.base_sequence == 0


def test_what_expires_unsent_says_nothing_of_what_is_sent_later(numbers: Numbers) -> None:
    # Chaos showed it: what landed was called never sent, and its sequences went to another batch.
    window = SendWindow(0, ID, 1)
    first, late, later = numbers.batch(), numbers.batch(deadline=10), numbers.batch(deadline=20)
    for batch in (first, late, later):
        window.push(batch)
    window.release(reset=False)
    assert window.take() is first
    assert [failed.batch for failed in window.expire(10)] == [late]
    window.acknowledged(first)
    assert window.take() is later
    window.refused(later, errors.TimedOut("perhaps"))

    [failed] = window.expire(20)

    assert failed.batch is later
    assert not failed.error.definite
    assert window.identity_spent


def test_a_deadline_in_flight_is_indefinite_and_spends_the_id_if_no_answer_comes(numbers: Numbers) -> None:
    window = SendWindow(0, ID, 5)
    batch = numbers.batch(deadline=10)
    window.push(batch)
    window.release(reset=False)
    window.take()
    [failed] = window.expire(10)
    assert isinstance(failed.error, errors.TimedOut)
    batch.failure = failed.error
    window.broken({batch.number}, errors.ConnectionLost("gone"))
    assert window.identity_spent


def test_giving_up_what_was_in_flight_never_lets_its_sequences_be_used_again(numbers: Numbers) -> None:
    # Another batch of the same length would pass for a repeat, and be lost without a word.
    window, batches = window_with(numbers, 1)
    [failed] = window.fail_all(errors.StreamNotFound("deleted"))
    assert failed.batch is batches[0]
    assert not failed.error.definite
    assert window.identity_spent


class DumbBroker:
    """A log of batch identities that keeps R8's rules, one request after the other."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.producers: dict[int, tuple[int, list[int]]] = {}
        self.refused = False

    def forget(self) -> None:
        self.producers.clear()

    def append(self, batch: Batch) -> None:
        header = BatchHeader.unpack(batch.data)
        known = self.producers.get(header.producer_id)
        if known is None:
            if header.base_sequence:
                raise errors.UnknownProducer("who?")
            known = (0, [])
        following, window = known
        if header.base_sequence in window:
            return
        if header.base_sequence != following:
            raise errors.OutOfOrderSequence("gap")
        self.log.append(batch.number)
        window = [*window, header.base_sequence][-5:]
        self.producers[header.producer_id] = ((following + batch.count) % SEQUENCE_MODULUS, window)


@pytest.mark.parametrize("seed", range(300))
def test_whatever_fails_nothing_is_lost_doubled_reordered_or_wrongly_called_definite(seed: int) -> None:
    rng = random.Random(seed)
    numbers, broker = Numbers(), DumbBroker()
    window = SendWindow(0, ID, 5)
    acknowledged: list[int] = []
    results: dict[int, errors.TidelogError] = {}
    identities = 0
    now = 0.0
    inflight: list[Batch] = []
    slow = seed % 2 == 1
    # Answers of some steps come with later ones, so that what waits for room may expire.

    def report(failed: list[Failed]) -> None:
        for batch, error in failed:
            if batch.number in results or batch.number in acknowledged:
                continue
            batch.failure = error
            results[batch.number] = error

    def answer(batch: Batch) -> None:
        """The broker gets one request and answers it."""
        if window.reset_next:
            broker.refused, window.reset_next = False, False
        if broker.refused:
            report(window.refused(batch, errors.PrecedingFailed("after")))
            return
        fault = rng.random()
        try:
            if fault < 0.10:
                raise rng.choice(
                    [
                        errors.NotEnoughReplicas("few"),
                        errors.InvalidTimestamp("future"),
                        errors.DiskFull("full"),
                    ]
                )
            broker.append(batch)
            if fault < 0.15:
                raise errors.TimedOut("late")
        except errors.TidelogError as error:
            broker.refused = True
            report(window.refused(batch, error))
            return
        window.acknowledged(batch)
        if batch.number not in results:
            acknowledged.append(batch.number)

    for _ in range(200):
        now += 1
        if rng.random() < (0.9 if slow else 0.5):
            window.push(numbers.batch(deadline=now + rng.choice([5, 1000])))
        if window.settled and not window.idle:
            if window.identity_spent:
                identities += 1
                report(window.adopt(ProducerIdentity(100 + identities, 0)))
            window.release(reset=True)
        while window.ready:
            inflight.append(window.take())
        if rng.random() < 0.1:
            # The connection breaks; the broker got some of it. A new call is a clean one.
            arrived = rng.randrange(len(inflight) + 1)
            for batch in inflight[:arrived]:
                try:
                    broker.append(batch)
                except errors.TidelogError:
                    break
            written = {batch.number for batch in inflight[: arrived + 1]}
            report(window.broken(written, errors.ConnectionLost("gone")))
            broker.refused = False
            inflight = []
        # R8 lets an unknown producer begin at 0, so state must outlive a first batch in doubt.
        first_in_doubt = any(
            batch.doubt and not batch.base_sequence for batch in (*window._returned, *inflight)
        )
        if rng.random() < 0.02 and not first_in_doubt:
            broker.forget()
        answered = rng.choice((0, 0, 0, 2)) if slow else len(inflight)
        for batch in inflight[:answered]:
            answer(batch)
        inflight = inflight[answered:]
        report(window.expire(now))

    landed = broker.log
    assert len(landed) == len(set(landed)), "a batch landed twice"
    assert landed == sorted(landed), "the order changed"
    assert set(acknowledged) <= set(landed), "an acknowledged batch is missing"
    for number, error in results.items():
        assert not (error.definite and number in landed), (
            f"batch {number} landed, and failed definitely: {error!r}"
        )
