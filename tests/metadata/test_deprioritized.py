"""R6, 2c, F7: a replica with damage and a broker whose clock is off lead only where nobody better can."""

from __future__ import annotations

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog_broker.core.metadata.commands import (
    ChangeBroker,
    ChangePartitions,
    Command,
    PartitionChange,
    ReplicaName,
)
from tidelog_broker.core.metadata.controller.deprioritized import DeprioritizedLeaders
from tidelog_broker.core.metadata.controller.handovers import Handovers
from tidelog_broker.core.metadata.controller.liveness import Sessions
from tidelog_broker.core.metadata.controller.reports import FailureReports
from tidelog_broker.core.metadata.controller.upkeep import Upkeep, fence, stop
from tidelog_broker.core.metadata.decisions import elections
from tidelog_broker.core.metadata.image import ClusterImage

S = identifier(1)
HERE = ReplicaName(S, 0)


def cluster(*commands: Command, replicas: tuple[int, ...] = (0, 1, 2)) -> ClusterImage:
    return applied(quorum_cluster(4), [created(1, replicas=replicas), *commands])


def isr(*members: int, leader: int | None = None) -> ChangePartitions:
    return ChangePartitions((PartitionChange(S, 0, isr=members, leader=leader),))


def told(
    image: ClusterImage, *, damaged: tuple[int, ...] = (), clocks: tuple[int, ...] = ()
) -> DeprioritizedLeaders:
    deprioritized = DeprioritizedLeaders()
    for broker in image.brokers.values():
        names = (HERE,) if broker.id in damaged else ()
        deprioritized.heard(broker.id, broker.incarnation, names, clock_off=broker.id in clocks)
    return deprioritized


def leader_after(image: ClusterImage, command: Command | None) -> int | None:
    assert command is not None
    return applied(image, [command]).streams[S].partitions[0].leader


@pytest.mark.parametrize(
    ("damaged", "clocks", "order"),
    [
        ((), (), [0, 1, 2]),
        ((0,), (), [1, 2, 0]),
        ((0, 1), (), [2, 0, 1]),
        ((0, 1, 2), (), [0, 1, 2]),
        ((), (0,), [1, 2, 0]),
        ((1,), (0, 2), [0, 2, 1]),
        ((0,), (0, 1), [2, 1, 0]),
    ],
)
def test_r6_deprioritized_brokers_come_last_and_damage_counts_more_than_a_clock(
    damaged: tuple[int, ...], clocks: tuple[int, ...], order: list[int]
) -> None:
    image = cluster()
    deprioritized = told(image, damaged=damaged, clocks=clocks).of(image, (S, 0))

    assert elections.candidates(image, image.streams[S].partitions[0], deprioritized=deprioritized) == order


def test_r6_a_damaged_member_comes_before_an_eligible_one_and_after_a_cordoned_one() -> None:
    small = cluster(isr(0))
    cordoned = cluster(ChangeBroker(1, cordoned=True), isr(0, 1))
    first = small.streams[S].partitions[0]

    assert first.eligible == (1, 2)
    deprioritized = told(small, damaged=(0,)).of(small, (S, 0))
    assert elections.candidates(small, first, deprioritized=deprioritized) == [0, 1, 2]
    deprioritized = told(cordoned, damaged=(0,)).of(cordoned, (S, 0))
    assert elections.candidates(cordoned, cordoned.streams[S].partitions[0], deprioritized=deprioritized)[
        :2
    ] == [
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("changes", "damaged", "next_leader"),
    [
        ((), (0,), 1),
        ((), (0, 1), 2),
        ((), (0, 1, 2), 0),
        ((), (1, 2), 0),
        ((isr(0, 2, leader=0),), (0,), 2),
        ((isr(0, leader=0),), (0,), 0),
        ((ChangeBroker(1, stopping=True),), (0,), 2),
        ((ChangeBroker(1, stopping=True), ChangeBroker(2, stopping=True)), (0,), 0),
        ((ChangeBroker(1, cordoned=True), isr(0, 1, leader=0)), (0,), 1),
    ],
)
def test_2c_a_damaged_leader_hands_over_to_the_best_undamaged_member_or_leads_on(
    changes: tuple[Command, ...], damaged: tuple[int, ...], next_leader: int
) -> None:
    image = cluster(*changes)

    moves = told(image, damaged=damaged).moves(image)

    after = applied(image, [ChangePartitions(moves)] if moves else []).streams[S].partitions[0]
    assert (after.leader, after.isr) == (next_leader, image.streams[S].partitions[0].isr)
    assert bool(moves) == (next_leader != 0)


def test_2c_the_controller_moves_a_damaged_leader_once_and_not_back() -> None:
    image = cluster()
    handovers = Handovers()
    upkeep = Upkeep(Sessions(), FailureReports(), told(image, damaged=(0,)), handovers)

    assert upkeep.next_command(image, 0) is None
    handovers.settled(0, handovers.to_settle(image, 0, 0), 0)
    command = upkeep.next_command(image, 0)
    assert leader_after(image, command) == 1
    assert isinstance(command, ChangePartitions)
    image = applied(image, [command])

    assert upkeep.next_command(image, 20) is None
    upkeep.deprioritized.heard(0, image.brokers[0].incarnation)
    assert upkeep.next_command(image, 40) is None
    assert repr(upkeep.deprioritized) == "<DeprioritizedLeaders damaged=0 clocks_off=[]>"


def test_f7_a_leader_whose_clock_is_off_leads_on_for_a_moment() -> None:
    image = cluster()

    assert told(image, clocks=(0,)).moves(image) == ()


@pytest.mark.parametrize(
    ("clocks", "damaged", "next_leader"),
    [((0,), (), 1), ((0, 1), (), 2), ((0, 1, 2), (), None), ((0,), (1, 2), None)],
)
def test_r18_a_leader_whose_clock_stays_off_hands_over_to_a_good_one(
    clocks: tuple[int, ...], damaged: tuple[int, ...], next_leader: int | None
) -> None:
    image = cluster()
    deprioritized = told(image, damaged=damaged, clocks=clocks)
    deprioritized.heard(0, image.brokers[0].incarnation, clock_off=True, clock_yields=True)

    moved = [change.leader for change in deprioritized.moves(image)]

    assert moved == ([] if next_leader is None else [next_leader])


def test_r18_a_leader_without_an_heir_is_looked_at_again_when_another_clock_is_good() -> None:
    image = cluster()
    deprioritized = told(image, clocks=(0, 1, 2))
    deprioritized.heard(0, image.brokers[0].incarnation, clock_off=True, clock_yields=True)
    assert deprioritized.moves(image) == deprioritized.moves(image) == ()

    deprioritized.heard(2, image.brokers[2].incarnation)

    assert [change.leader for change in deprioritized.moves(image)] == [2]


def test_what_a_run_said_that_is_over_does_not_count() -> None:
    image = cluster()
    deprioritized = told(image, damaged=(0,), clocks=(1,))
    image = applied(image, [registered(0, 2), registered(1, 2), isr(0, 1, 2, leader=0)])

    assert dict(deprioritized.of(image, (S, 0))) == {}
    assert deprioritized.moves(image) == ()


def test_r6_every_way_to_a_new_leader_asks_who_is_willing() -> None:
    image = cluster()
    deprioritized = told(image, damaged=(1,)).of

    assert leader_after(image, fence(image, 0, deprioritized)) == 2
    assert leader_after(image, stop(image, 0, image.brokers[0].incarnation, deprioritized)) == 2


def test_the_newest_word_of_a_broker_takes_the_place_of_the_one_before() -> None:
    image = cluster()
    deprioritized = told(image, damaged=(0, 1))
    other = ReplicaName(identifier(2), 0)

    deprioritized.heard(0, image.brokers[0].incarnation, (other,))

    assert list(deprioritized.of(image, (S, 0))) == [1]
    assert list(deprioritized.of(image, (identifier(2), 0))) == [0]
    deprioritized.heard(0, image.brokers[0].incarnation)
    deprioritized.heard(1, image.brokers[1].incarnation)
    assert not deprioritized.of(image, (S, 0))
