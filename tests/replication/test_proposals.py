"""R4: what was proposed stays possible until it is decided."""

from __future__ import annotations

from tidelog_broker.core.replication.proposals import Proposals


def test_what_was_proposed_together_stays_possible_together() -> None:
    proposals = Proposals()
    proposals.sent(7, (1, 2), (1, 2, 3))
    proposals.sent(7, (1, 2), (1,))

    assert (proposals.joining, proposals.leaving) == ((3,), (2,))


def test_the_same_proposal_sent_again_is_one_however_long_there_is_no_controller() -> None:
    proposals = Proposals()
    for _ in range(1000):
        proposals.sent(7, (1, 2), (1, 2, 3))

    assert repr(proposals) == "<Proposals undecided=1 joining=(3,) leaving=()>"


def test_a_newer_partition_epoch_decides_what_named_an_older_one() -> None:
    proposals = Proposals()
    proposals.sent(7, (1, 2), (1, 2, 3))

    proposals.image_at(7)
    assert proposals.undecided
    proposals.image_at(8)
    assert not proposals.undecided


def test_a_proposal_to_keep_everything_as_it_is_is_undecided_as_well() -> None:
    proposals = Proposals()
    proposals.sent(7, (1, 2), (1, 2))

    assert proposals.undecided
    assert (proposals.joining, proposals.leaving) == ((), ())
