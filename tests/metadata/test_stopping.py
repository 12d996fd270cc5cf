"""K2: a broker may stop when every partition can do without it, and two do not stop at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog.errors import InvalidRequest
from tidelog_broker.core.metadata.commands import ChangePartitions, Command, PartitionChange
from tidelog_broker.core.metadata.controller import upkeep
from tidelog_broker.core.metadata.decisions import elections, stopping
from tidelog_broker.core.metadata.decisions.stopping import Hindrance
from tidelog_broker.core.metadata.image import ClusterImage

S = identifier(1)


def cluster(*commands: Command, replicas: tuple[int, ...] = (0, 1, 2)) -> ClusterImage:
    return applied(quorum_cluster(4), [created(1, replicas=replicas), *commands])


def with_isr(image: ClusterImage, *isr: int, leader: int | None = 0) -> ClusterImage:
    leading = image.streams[S].partitions[0].leader
    change = (
        PartitionChange(S, 0, isr=isr) if leader == leading else PartitionChange(S, 0, isr=isr, leader=leader)
    )
    return applied(image, [ChangePartitions((change,))])


def asked(image: ClusterImage, broker: int) -> ClusterImage:
    command = stopping.prepare_stop(image, broker)
    return applied(image, [command] if command else [])


def handed_over(image: ClusterImage, broker: int) -> ClusterImage:
    return applied(image, [ChangePartitions(elections.hand_over(image, broker))])


def hindrances(image: ClusterImage, broker: int) -> list[Hindrance]:
    return [one.hindrance for one in stopping.hindered(image, broker)]


def test_a_leader_that_asks_is_marked_and_waits_until_others_lead() -> None:
    image = cluster()
    assert hindrances(image, 0) == [Hindrance.LEADING]

    marked = asked(image, 0)

    assert marked.brokers[0].stopping
    assert marked.streams[S].partitions[0].leader == 0
    assert not stopping.is_prepared(marked, 0, stopping.hindered(marked, 0))
    assert stopping.prepare_stop(marked, 0) is None
    after = handed_over(marked, 0)
    assert after.streams[S].partitions[0].leader == 1
    assert stopping.is_prepared(after, 0, stopping.hindered(after, 0))


def test_a_broker_waits_while_without_it_too_few_would_be_in_sync() -> None:
    image = with_isr(cluster(), 0, 1)

    assert stopping.prepare_stop(image, 1) is None
    assert hindrances(image, 1) == [Hindrance.TOO_FEW]
    assert not stopping.is_prepared(image, 1, stopping.hindered(image, 1))
    assert asked(with_isr(image, 0, 1, 2), 1).brokers[1].stopping


def test_of_two_that_would_stop_at_once_one_waits_until_the_other_is_back() -> None:
    image = handed_over(asked(cluster(), 0), 0)

    assert stopping.prepare_stop(image, 1) is None
    assert hindrances(image, 1) == [Hindrance.TOO_FEW]
    assert not image.brokers[1].stopping
    # The first one starts again, and leaves the ISR for a moment.
    away = with_isr(applied(image, [upkeep.fence(image, 0), registered(0, 2)]), 1, 2, leader=1)
    assert stopping.prepare_stop(away, 1) is None
    assert asked(with_isr(away, 0, 1, 2, leader=1), 1).brokers[1].stopping


def test_a_partition_below_its_minimum_already_is_reported_and_does_not_block() -> None:
    image = with_isr(cluster(), 0)

    after = asked(image, 2)

    assert hindrances(after, 2) == [Hindrance.BELOW_ALREADY]
    assert stopping.is_prepared(after, 2, stopping.hindered(after, 2))


def test_a_partition_without_a_copy_to_spare_is_reported_and_does_not_block() -> None:
    image = asked(cluster(replicas=(0,)), 0)

    assert hindrances(image, 0) == [Hindrance.NO_SPARE]
    assert stopping.is_prepared(image, 0, stopping.hindered(image, 0))


def test_leadership_moves_even_where_no_stop_can_keep_the_minimum() -> None:
    image = cluster(replicas=(0, 1))
    assert hindrances(image, 0) == [Hindrance.LEADING]

    after = handed_over(asked(image, 0), 0)

    assert after.streams[S].partitions[0].leader == 1
    assert hindrances(after, 0) == [Hindrance.NO_SPARE]


def test_a_broker_that_holds_nothing_may_stop_at_once_but_only_when_it_is_marked() -> None:
    image = cluster()

    assert hindrances(image, 3) == []
    assert not stopping.is_prepared(image, 3, [])
    assert stopping.is_prepared(asked(image, 3), 3, [])


def test_what_blocks_is_named_first() -> None:
    image = with_isr(applied(cluster(), [created(2, name="a", replicas=(0,))]), 0, 1)

    assert [(one.stream, one.hindrance) for one in stopping.hindered(image, 0)] == [
        ("stream-1", Hindrance.TOO_FEW),
        ("a", Hindrance.NO_SPARE),
    ]


def test_a_fenced_broker_that_asks_is_not_kept_waiting() -> None:
    image = cluster()
    image = applied(image, [upkeep.fence(image, 2)])

    assert stopping.is_prepared(image, 2, stopping.hindered(image, 2))


@pytest.mark.parametrize("decide", [stopping.prepare_stop, stopping.cancel_stop])
def test_an_unknown_broker_is_refused(decide: Callable[[ClusterImage, int], Command | None]) -> None:
    with pytest.raises(InvalidRequest, match="broker 9 is not registered"):
        decide(cluster(), 9)


def test_a_mark_is_taken_away_and_the_broker_may_lead_again() -> None:
    marked = handed_over(asked(cluster(), 0), 0)

    command = stopping.cancel_stop(marked, 0)

    assert command is not None
    after = applied(marked, [command])
    assert not after.brokers[0].stopping
    assert after.streams[S].partitions[0].leader == 1, "leadership stays where it went"
    assert asked(after, 1).brokers[1].stopping, "another broker may stop"
    assert stopping.cancel_stop(after, 0) is None, "there is no mark any more"


def test_a_broker_that_is_really_stopping_is_marked_again_by_its_next_heartbeat() -> None:
    image = asked(cluster(), 2)
    command = stopping.cancel_stop(image, 2)
    assert command is not None
    image = applied(image, [command])

    again = upkeep.stop(image, 2, image.brokers[2].incarnation)

    assert again is not None
    assert applied(image, [again]).brokers[2].stopping


def test_a_mark_ends_with_the_next_run() -> None:
    image = applied(asked(cluster(), 0), [registered(0, 2)])

    assert not image.brokers[0].stopping
    assert asked(image, 1).brokers[1].stopping
