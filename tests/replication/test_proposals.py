"""R4: what was proposed stays possible until it is decided."""

from __future__ import annotations

from tidelog_broker.core.replication.proposals import Proposals


def test_every_attempt_is_decided_by_itself() -> None:
    proposals = Proposals()
    first = proposals.sent(7, (1, 2), (1, 2, 3))
    second = proposals.sent(7, (1, 2), (1,))

    assert (proposals.joining, proposals.leaving) == ((3,), (2,))
    assert proposals.refused(second)
    assert (proposals.joining, proposals.leaving) == ((3,), ())
    assert proposals.refused(first)
    assert not proposals.refused(first)
    assert not proposals.undecided


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
    assert repr(proposals) == "<Proposals undecided=1 joining=() leaving=()>"
