"""R18: the cluster's clock is the one in the middle of the clocks of its brokers."""

from __future__ import annotations

import pytest

from metadata.samples import applied, quorum_cluster
from tidelog_broker.core.metadata.commands import ChangeBroker, UnregisterBroker
from tidelog_broker.core.metadata.controller.clocks import (
    AGREE_US,
    HEARTBEATS_KEPT,
    JOURNEY_US_MAX,
    Clocks,
    ClusterTime,
)

T0 = 1_800_000_000_000_000
YEAR = 365 * 86_400_000_000


def heard(*clocks: int) -> Clocks:
    found = Clocks()
    for broker, clock_us in enumerate(clocks):
        found.heard(broker, clock_us, 0)
    return found


@pytest.mark.parametrize(
    ("offsets", "middle"),
    [
        ((0,), 0),
        ((0, YEAR), 0),
        ((YEAR, 0), 0),
        ((-YEAR, 0), -YEAR),
        ((0, 5, YEAR), 5),
        ((YEAR, -YEAR, 0), 0),
        ((0, 0, YEAR, YEAR), 0),
        ((YEAR, 1, 2, 3, 4), 3),
    ],
)
def test_r18_no_single_clock_is_believed(offsets: tuple[int, ...], middle: int) -> None:
    image = quorum_cluster(len(offsets))

    now = heard(*(T0 + offset for offset in offsets)).now(image, 7)

    assert now == ClusterTime(T0 + middle + 7, len(offsets))


def test_r18_a_new_controller_says_nothing_before_it_heard_most_of_the_brokers() -> None:
    image = quorum_cluster(3)
    clocks = Clocks()
    assert clocks.now(image, 0) is None
    clocks.heard(0, T0 + 5, 0)
    assert clocks.now(image, 0) is None
    clocks.heard(1, T0, 0)

    assert clocks.now(image, 0) == ClusterTime(T0, 2)


def test_r18_while_those_that_were_heard_disagree_the_others_are_waited_for() -> None:
    image, clocks = quorum_cluster(3), Clocks()
    clocks.heard(0, T0 - YEAR, 0)
    clocks.heard(1, T0, 0)
    assert clocks.now(image, 0) is None, "the third one will say which is right"

    fenced = applied(image, [ChangeBroker(2, fenced=True)])
    assert clocks.now(fenced, 0) == ClusterTime(T0 - YEAR, 2), "it will not"
    clocks.heard(2, T0 + AGREE_US, 0)
    assert clocks.now(image, 0) == ClusterTime(T0, 3)


def test_r18_brokers_that_are_gone_are_not_waited_for() -> None:
    image = applied(quorum_cluster(3), [ChangeBroker(1, fenced=True), ChangeBroker(2, fenced=True)])

    assert heard(T0).now(image, 0) == ClusterTime(T0, 1)


def test_r18_a_fenced_brokers_last_clock_counts_and_an_unregistered_ones_does_not() -> None:
    image = applied(quorum_cluster(3), [ChangeBroker(1, fenced=True)])
    clocks = heard(T0 + YEAR, T0, T0)
    assert clocks.now(image, 0) == ClusterTime(T0, 3)

    image = applied(image, [UnregisterBroker(1), UnregisterBroker(2)])
    assert clocks.now(image, 0) == ClusterTime(T0 + YEAR, 1)


def test_r18_a_heartbeat_that_took_long_makes_no_clock_late() -> None:
    image, clocks = quorum_cluster(1), Clocks()
    clocks.heard(0, T0, 0)
    clocks.heard(0, T0 + 250, 900_000)
    assert clocks.now(image, 900_000) == ClusterTime(T0 + 900_000, 1)

    for _ in range(HEARTBEATS_KEPT):
        clocks.heard(0, T0, 900_000)
    assert clocks.now(image, 900_000) == ClusterTime(T0, 1)


def test_r18_brokers_of_an_earlier_version_do_not_say_and_are_not_waited_for() -> None:
    assert heard(0, 0, T0).now(quorum_cluster(3), 0) == ClusterTime(T0, 1)
    assert heard(0, 0, 0).now(quorum_cluster(3), 0) is None


def test_r18_a_clock_that_was_set_back_counts_at_once_as_it_is_now() -> None:
    image, clocks = quorum_cluster(3), heard(T0, T0 + YEAR, T0 + 5)
    clocks.heard(1, T0 + 3, 0)
    clocks.heard(2, T0 + 2 * YEAR, 0)

    assert clocks.now(image, 0) == ClusterTime(T0 + 3, 3)


def test_r18_a_heartbeat_that_took_long_does_not_make_its_clock_late() -> None:
    clocks = heard(T0)
    clocks.heard(0, T0, JOURNEY_US_MAX)

    assert clocks.now(quorum_cluster(1), 0) == ClusterTime(T0, 1)
