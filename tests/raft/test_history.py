"""M2a: which logs are of one history, and whose knowledge is not given up without a command."""

from __future__ import annotations

import pytest

from tidelog.errors import InvalidRequest
from tidelog_broker.core.raft.changes import check_change
from tidelog_broker.core.raft.history import History, Relation, knows_more, relation
from tidelog_broker.model import Configuration, Recovery, Voter

ME, OTHER = Voter(1, b"1" * 16), Voter(2, b"2" * 16)
A, B, C = (Recovery(letter * 16, 10, 3) for letter in (b"a", b"b", b"c"))


@pytest.mark.parametrize(
    ("mine", "theirs", "is_to"),
    [
        ((), (), Relation.SAME),
        ((A, B), (A, B), Relation.SAME),
        (None, (A,), Relation.SAME),
        ((A,), None, Relation.SAME),
        ((), (A,), Relation.EARLIER),
        ((A,), (A, B, C), Relation.EARLIER),
        ((A, B), (A,), Relation.LATER),
        ((A,), (B,), Relation.OTHER),
        ((A, B), (A, C), Relation.OTHER),
        ((A, B), (C,), Relation.OTHER),
    ],
)
def test_what_one_history_is_to_another(mine: History, theirs: History, is_to: Relation) -> None:
    assert relation(mine, theirs) is is_to


@pytest.mark.parametrize(
    ("last", "more"),
    [((3, 10), False), ((3, 9), False), ((2, 99), False), ((3, 11), True), ((4, 2), True)],
)
def test_a_voter_knows_more_that_should_have_been_recovered_instead(
    last: tuple[int, int], more: bool
) -> None:
    assert knows_more(ME, Configuration((ME, OTHER)), last, (A,)) == more
    assert not knows_more(ME, Configuration((OTHER,), (ME,)), last, (A,)), "a learner never decides"


def test_the_first_recovery_that_a_log_does_not_know_counts() -> None:
    later = Recovery(b"l" * 16, 20, 7)

    assert knows_more(ME, Configuration((ME,), recoveries=(A,)), (7, 21), (A, later))
    assert not knows_more(ME, Configuration((ME,), recoveries=(A,)), (7, 19), (A, later))


def test_configurations_are_written_as_before_where_nothing_was_recovered() -> None:
    plain, recovered = Configuration((ME,)), Configuration((ME,), recoveries=(A,))

    assert Configuration.decode(plain.encode()) == plain
    assert b"recoveries" not in plain.encode()
    assert Configuration.decode(recovered.encode()) == recovered


def test_no_change_of_the_voters_forgets_a_recovery() -> None:
    with pytest.raises(AssertionError, match="only a forced recovery begins a history"):
        check_change(Configuration((ME, OTHER), recoveries=(A,)), Configuration((ME, OTHER)))
    with pytest.raises(InvalidRequest):
        check_change(Configuration((ME, OTHER), recoveries=(A,)), Configuration((), recoveries=(A,)))
