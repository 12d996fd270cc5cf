"""The lane by itself, and against a dumb broker that keeps R8's rules while everything fails."""

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


def lane_with(
    numbers: Numbers, count: int, identity: ProducerIdentity = ID, window: int = 5
) -> tuple[SendWindow, list[Batch]]:
    """A lane that has sent `count` batches."""
    lane = SendWindow(0, identity, window)
    batches = [numbers.batch() for _ in range(count)]
    for batch in batches:
        lane.push(batch)
    lane.release(reset=False)
    for _ in range(min(count, window)):
        lane.take()
    return lane, batches


def test_batches_bear_consecutive_sequences_and_valid_checksums(numbers: Numbers) -> None:
    _, batches = lane_with(numbers, 3)
    headers = [BatchHeader.unpack(batch.data) for batch in batches]
    assert [header.base_sequence for header in headers] == [0, 3, 6]
    assert {header.producer_id for header in headers} == {7}
    for batch in batches:
        whole = encode_batch(COLUMNS, producer_id=7, base_sequence=batch.base_sequence)
        assert batch.data == whole


def test_no_more_than_the_window_is_in_flight(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 7)
    assert lane.inflight == 5
    assert not lane.ready
    lane.acknowledged(batches[0])
    assert lane.ready


def test_sequences_wrap_around(numbers: Numbers) -> None:
    lane = SendWindow(0, ID, 5)
    lane._next_free = SEQUENCE_MODULUS - 2
    lane.push(numbers.batch())
    lane.push(numbers.batch())
    assert [batch.base_sequence for batch in lane._waiting] == [SEQUENCE_MODULUS - 2, 1]


def test_after_an_error_nothing_goes_out_until_all_is_answered_and_then_in_order(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 3)
    assert lane.refused(batches[0], errors.NotEnoughReplicas("too few")) == []
    assert lane.held
    assert not lane.settled
    for batch in batches[1:]:
        assert lane.refused(batch, errors.PrecedingFailed("after")) == []
    assert lane.settled
    lane.release(reset=True)
    assert lane.reset_next
    assert [lane.take() for _ in range(3)] == batches


def test_a_batch_that_never_landed_leaves_its_sequences_to_the_next(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 3)
    [failed] = lane.refused(batches[0], errors.InvalidTimestamp("future"))
    assert failed == Failed(batches[0], failed.error)
    for batch in batches[1:]:
        lane.refused(batch, errors.PrecedingFailed("after"))
    lane.release(reset=True)
    assert [lane.take().base_sequence for _ in range(2)] == [0, 3]


def test_an_indefinite_error_is_repeated_with_the_same_sequences(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 2)
    assert lane.broken({1, 2}, errors.ConnectionLost("gone")) == []
    lane.release(reset=False)
    assert [(lane.take(), batch.base_sequence) for batch in batches] == [(batches[0], 0), (batches[1], 3)]


def test_what_is_sent_behind_a_receipt_never_bears_the_sequences_of_what_it_told_of(numbers: Numbers) -> None:
    """A receipt may come behind a batch in doubt: the log has both, and the first is sent again."""
    lane, batches = lane_with(numbers, 3)
    lane.refused(batches[0], errors.TimedOut("not committed in time; it may be later"))
    lane.acknowledged(batches[1])
    lane.refused(batches[2], errors.PrecedingFailed("after"))
    lane.release(reset=True)
    assert [batch.base_sequence for batch in lane._waiting] == [0, 6]
    for batch in (batches[0], batches[2]):
        lane.take()
        lane.acknowledged(batch)
    assert lane.next_sequence() == 9


def test_a_repeat_of_what_stands_before_a_receipt_takes_no_sequence_back(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 2)
    lane.refused(batches[0], errors.TimedOut("not committed in time; it may be later"))
    lane.acknowledged(batches[1])
    lane.release(reset=True)
    assert lane.next_sequence() == 6
    lane.take()
    lane.acknowledged(batches[0])
    assert lane.next_sequence() == 6


@pytest.mark.parametrize("identity", [ID, ANONYMOUS], ids=["idempotent", "plain"])
def test_what_ends_a_call_definitely_leaves_what_was_written_in_doubt(
    numbers: Numbers, identity: ProducerIdentity
) -> None:
    lane, batches = lane_with(numbers, 2, identity)
    failed = lane.broken({batches[0].number}, errors.ResourceExhausted("too many partitions in one call"))
    failed += lane.expire(1e9)
    assert [failure.error.definite for failure in failed] == [False, True]


def test_without_idempotence_what_was_written_fails_and_what_was_not_goes_again(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 2, ANONYMOUS)
    lost = errors.ConnectionLost("gone")
    assert lane.broken({1}, lost) == [Failed(batches[0], lost)]
    lane.release(reset=False)
    assert lane.take() is batches[1]


def test_unknown_producer_begins_again_under_a_new_id_if_nothing_can_have_landed(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 2)
    lane._next_free = 0
    assert lane.refused(batches[0], errors.UnknownProducer("who?")) == []
    assert lane.refused(batches[1], errors.PrecedingFailed("after")) == []
    assert lane.identity_spent
    assert lane.adopt(ProducerIdentity(8, 0)) == []
    lane.release(reset=True)
    header = BatchHeader.unpack(lane.take().data)
    assert (header.producer_id, header.base_sequence) == (8, 0)


def test_unknown_producer_after_a_doubtful_attempt_is_reported_as_indefinite(numbers: Numbers) -> None:
    lane, batches = lane_with(numbers, 3)
    lane.broken({1, 2}, errors.ConnectionLost("gone"))
    lane.release(reset=False)
    for _ in range(3):
        lane.take()
    [first] = lane.refused(batches[0], errors.UnknownProducer("who?"))
    assert not first.error.definite
    assert isinstance(first.error.__cause__, errors.UnknownProducer)
    for batch in batches[1:]:
        lane.refused(batch, errors.PrecedingFailed("after"))
    [second] = lane.adopt(ProducerIdentity(8, 0))
    assert second.batch is batches[1]
    assert not second.error.definite
    lane.release(reset=True)
    assert lane.take() is batches[2]
    assert batches[2].base_sequence == 0


def test_a_deadline_before_sending_is_a_definite_failure(numbers: Numbers) -> None:
    lane = SendWindow(0, ID, 5)
    late, early = numbers.batch(deadline=10), numbers.batch(deadline=20)
    lane.push(late)
    lane.push(early)
    [failed] = lane.expire(10)
    assert failed.batch is late
    assert failed.error.definite
    lane.release(reset=False)
    assert lane.take() is early
    assert early.base_sequence == 0


def test_what_expires_unsent_says_nothing_of_what_is_sent_later(numbers: Numbers) -> None:
    # Chaos showed it: what landed was called never sent, and its sequences went to another batch.
    lane = SendWindow(0, ID, 1)
    first, late, later = numbers.batch(), numbers.batch(deadline=10), numbers.batch(deadline=20)
    for batch in (first, late, later):
        lane.push(batch)
    lane.release(reset=False)
    assert lane.take() is first
    assert [failed.batch for failed in lane.expire(10)] == [late]
    lane.acknowledged(first)
    assert lane.take() is later
    lane.refused(later, errors.TimedOut("perhaps"))

    [failed] = lane.expire(20)

    assert failed.batch is later
    assert not failed.error.definite
    assert lane.identity_spent


def test_a_deadline_in_flight_is_indefinite_and_spends_the_id_if_no_answer_comes(numbers: Numbers) -> None:
    lane = SendWindow(0, ID, 5)
    batch = numbers.batch(deadline=10)
    lane.push(batch)
    lane.release(reset=False)
    lane.take()
    [failed] = lane.expire(10)
    assert isinstance(failed.error, errors.TimedOut)
    batch.failure = failed.error
    lane.broken({batch.number}, errors.ConnectionLost("gone"))
    assert lane.identity_spent


def test_giving_up_what_was_in_flight_never_lets_its_sequences_be_used_again(numbers: Numbers) -> None:
    # Another batch of the same length would pass for a repeat, and be lost without a word.
    lane, batches = lane_with(numbers, 1)
    [failed] = lane.fail_all(errors.StreamNotFound("deleted"))
    assert failed.batch is batches[0]
    assert not failed.error.definite
    assert lane.identity_spent


class DumbBroker:
    """A log of batch identities that keeps R8's rules, one request after the other."""

    def __init__(self) -> None:
        self.log: list[object] = []
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
    lane = SendWindow(0, ID, 5)
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
        if lane.reset_next:
            broker.refused, lane.reset_next = False, False
        if broker.refused:
            report(lane.refused(batch, errors.PrecedingFailed("after")))
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
            report(lane.refused(batch, error))
            return
        lane.acknowledged(batch)
        if batch.number not in results:
            acknowledged.append(batch.number)

    for _ in range(200):
        now += 1
        if rng.random() < (0.9 if slow else 0.5):
            lane.push(numbers.batch(deadline=now + rng.choice([5, 1000])))
        if lane.settled and not lane.idle:
            if lane.identity_spent:
                identities += 1
                report(lane.adopt(ProducerIdentity(100 + identities, 0)))
            lane.release(reset=True)
        while lane.ready:
            inflight.append(lane.take())
        if rng.random() < 0.1:
            # The connection breaks; the broker got some of it. A new call is a clean one.
            arrived = rng.randrange(len(inflight) + 1)
            for batch in inflight[:arrived]:
                try:
                    broker.append(batch)
                except errors.TidelogError:
                    break
            written = {batch.number for batch in inflight[: arrived + 1]}
            report(lane.broken(written, errors.ConnectionLost("gone")))
            broker.refused = False
            inflight = []
        # R8 lets an unknown producer begin at 0, so state must outlive a first batch in doubt.
        first_in_doubt = any(
            batch.doubt and not batch.base_sequence for batch in (*lane._returned, *inflight)
        )
        if rng.random() < 0.02 and not first_in_doubt:
            broker.forget()
        answered = rng.choice((0, 0, 0, 2)) if slow else len(inflight)
        for batch in inflight[:answered]:
            answer(batch)
        inflight = inflight[answered:]
        report(lane.expire(now))

    landed = broker.log
    assert len(landed) == len(set(landed)), "a batch landed twice"
    assert landed == sorted(landed), "the order changed"
    assert set(acknowledged) <= set(landed), "an acknowledged batch is missing"
    for number, error in results.items():
        assert not (error.definite and number in landed), (
            f"batch {number} landed, and failed definitely: {error!r}"
        )
