"""M1, M2: voters grow in pairs, are replaced with their disk, and leave one at a time."""

from __future__ import annotations

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog.errors import InvalidRequest
from tidelog_broker.core.metadata.commands import ChangeBroker, Command, CreateStream, UnregisterBroker
from tidelog_broker.core.metadata.decisions import quorum_plan
from tidelog_broker.core.metadata.image import ClusterImage, Vote
from tidelog_broker.model import Configuration, Voter


def cluster(brokers: int, *commands: Command) -> ClusterImage:
    disks = [registered(broker, disk=broker + 1) for broker in range(brokers)]
    return applied(quorum_cluster(0), [*disks, *commands])


def voter(broker: int, disk: int | None = None) -> Voter:
    return Voter(broker, identifier(broker + 1 if disk is None else disk))


def voters(*brokers: int, learners: tuple[int, ...] = ()) -> Configuration:
    return Configuration(tuple(map(voter, brokers)), tuple(map(voter, learners)))


def steps(
    configuration: Configuration, image: ClusterImage, *ready: Voter, wanted: int = 3, leader: int = 0
) -> list[Configuration]:
    """Every step until nothing is left to do; each changes one voter at most."""
    found: list[Configuration] = []
    caught_up = dict.fromkeys(ready, True)
    while True:
        after = quorum_plan.next_configuration(configuration, image, caught_up, wanted, leader=leader)
        if after is None:
            return found
        assert len(set(after.voters) ^ set(configuration.voters)) <= 1
        found.append(after)
        configuration = after
        assert len(found) < 20, "it goes on for ever"


def ids(configuration: Configuration) -> list[int]:
    return [one.broker_id for one in configuration.voters]


def test_m1_registered_brokers_become_learners() -> None:
    assert steps(voters(0), cluster(3)) == [voters(0, learners=(1, 2))]


def test_m1_one_voter_grows_to_three_only_when_two_learners_have_caught_up() -> None:
    begun = voters(0, learners=(1, 2))

    assert steps(begun, cluster(3), voter(1)) == []
    assert [ids(step) for step in steps(begun, cluster(3), voter(1), voter(2))] == [[0, 1], [0, 1, 2]]


def test_m1_a_step_to_an_even_number_is_completed_even_if_only_one_is_ready_by_then() -> None:
    assert steps(voters(0, 1, learners=(2,)), cluster(3)) == []
    assert steps(voters(0, 1, learners=(2,)), cluster(3), voter(2)) == [voters(0, 1, 2)]


def test_m1_three_grow_to_five_if_five_are_wanted() -> None:
    begun = voters(0, 1, 2, learners=(3, 4))
    ready = (voter(3), voter(4))

    assert steps(begun, cluster(5), *ready) == []
    assert [ids(step) for step in steps(begun, cluster(5), *ready, wanted=5)][-1] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("flag", ["fenced", "cordoned", "stopping"])
def test_m1_brokers_that_are_away_or_leaving_are_not_promoted(flag: str) -> None:
    image = cluster(3, ChangeBroker(2, **{flag: True}))  # type: ignore[arg-type]

    assert steps(voters(0, learners=(1, 2)), image, voter(1), voter(2)) == []


def test_m1_an_even_number_that_nobody_is_left_to_complete_becomes_odd() -> None:
    assert [ids(step) for step in steps(voters(0, 1), cluster(2))] == [[0]]
    assert [ids(step) for step in steps(voters(0, 1), cluster(2), leader=1)] == [[1]]


def test_m2_a_voter_with_another_disk_is_replaced_once_the_new_one_has_caught_up() -> None:
    image = cluster(3, registered(2, 2, disk=9))
    learning = Configuration(voters(0, 1, 2).voters, (voter(2, 9),))

    assert steps(voters(0, 1, 2), image) == [learning]
    removed, added = steps(learning, image, voter(2, 9))
    assert removed == Configuration(voters(0, 1).voters, (voter(2, 9),))
    assert added == Configuration((voter(0), voter(1), voter(2, 9)))


def test_m2_a_disk_that_was_replaced_twice_does_not_stay_a_learner() -> None:
    image = cluster(2, registered(1, 2, disk=9))

    assert steps(voters(0, learners=(1,)), image) == [Configuration((voter(0),), (voter(1, 9),))]


def test_unregistered_voters_leave_and_another_takes_the_place() -> None:
    image = cluster(4, UnregisterBroker(1))

    found = steps(voters(0, 1, 2, learners=(3,)), image, voter(3))

    assert [ids(step) for step in found] == [[0, 2], [0, 2, 3]]


def test_an_unregistered_leader_goes_last() -> None:
    image = cluster(3, UnregisterBroker(0), UnregisterBroker(1))

    found = steps(voters(0, 1, 2), image, leader=0)

    assert [ids(step) for step in found] == [[0, 2], [2]]


def test_the_only_voter_stays_whatever_the_image_says() -> None:
    assert steps(voters(0), cluster(1, UnregisterBroker(0))) == []


def test_voters_shrink_one_at_a_time_fenced_ones_first_and_the_leader_last() -> None:
    image = cluster(5, ChangeBroker(1, fenced=True))

    found = steps(voters(0, 1, 2, 3, 4), image, wanted=1, leader=4)

    assert [ids(step) for step in found] == [[0, 2, 3, 4], [0, 2, 4], [0, 4], [4]]
    assert found[-1].learners == tuple(map(voter, (0, 1, 2, 3)))


def said(broker: int, vote: Vote) -> ChangeBroker:
    return ChangeBroker(broker, vote=vote)


def held(*replicas: int) -> CreateStream:
    return created(1, replicas=replicas)


def test_a_vote_that_is_wanted_elsewhere_moves_by_one_more_and_one_fewer() -> None:
    image = cluster(4, said(3, Vote.WANTED))
    begun = voters(0, 1, 2, learners=(3,))

    assert steps(begun, image) == []
    assert [ids(step) for step in steps(begun, image, voter(3))] == [[0, 1, 2, 3], [0, 1, 3]]
    assert [ids(step) for step in steps(begun, image, voter(3), leader=2)] == [[0, 1, 2, 3], [0, 2, 3]]


def test_who_is_wanted_is_promoted_first() -> None:
    image = cluster(4, said(3, Vote.WANTED))

    found = steps(voters(0, learners=(1, 2, 3)), image, voter(1), voter(2), voter(3))

    assert [ids(step) for step in found] == [[0, 3], [0, 1, 3]]


def test_a_vote_that_is_not_wanted_moves_when_another_broker_is_ready() -> None:
    image = cluster(4, said(1, Vote.UNWANTED))
    begun = voters(0, 1, 2, learners=(3,))

    assert steps(begun, image) == []
    assert [ids(step) for step in steps(begun, image, voter(3))] == [[0, 1, 2, 3], [0, 2, 3]]
    assert [ids(step) for step in steps(begun, image, voter(3), leader=1)] == [[0, 1, 2, 3], [0, 2, 3]]


def test_who_is_not_wanted_is_not_promoted() -> None:
    image = cluster(4, said(1, Vote.UNWANTED))

    found = steps(voters(0, learners=(1, 2, 3)), image, voter(1), voter(2), voter(3))

    assert [ids(step) for step in found] == [[0, 2], [0, 2, 3]]


def test_the_vote_of_a_broker_that_was_drained_moves_unasked() -> None:
    cordoned = ChangeBroker(2, cordoned=True)
    begun, ready = voters(0, 1, 2, learners=(3,)), voter(3)

    assert steps(begun, cluster(4, held(0, 1, 2), cordoned), ready) == [], "it is not drained yet"
    found = steps(begun, cluster(4, held(0, 1, 3), cordoned), ready)
    assert [ids(step) for step in found] == [[0, 1, 2, 3], [0, 1, 3]]
    assert steps(voters(0, 1, 2), cluster(3, held(0, 1), cordoned)) == [], "nobody could vote instead"


def test_all_votes_move_to_the_brokers_that_are_wanted_the_leaders_too() -> None:
    image = cluster(6, *(said(broker, Vote.WANTED) for broker in (3, 4, 5)))
    ready = [voter(broker) for broker in (3, 4, 5)]

    found = steps(voters(0, 1, 2, learners=(3, 4, 5)), image, *ready)

    assert ids(found[-1]) == [3, 4, 5]
    assert {len(step.voters) for step in found} == {3, 4}


def test_a_voter_is_added_by_command() -> None:
    image = cluster(4, said(0, Vote.WANTED))

    assert quorum_plan.add_voter(image, 0, 3) is None
    assert quorum_plan.add_voter(image, 3, 3) == said(3, Vote.WANTED)
    with pytest.raises(InvalidRequest, match="broker 9 is not registered"):
        quorum_plan.add_voter(image, 9, 3)
    with pytest.raises(InvalidRequest, match="allows 1, and these brokers are set to vote already: 0;"):
        quorum_plan.add_voter(image, 1, 1)
    with pytest.raises(InvalidRequest, match="broker 1 is cordoned"):
        quorum_plan.add_voter(cluster(4, ChangeBroker(1, cordoned=True)), 1, 3)


def test_a_voter_is_removed_by_command_if_another_could_vote_instead() -> None:
    image = cluster(4)
    full = voters(0, 1, 2, learners=(3,))

    assert quorum_plan.remove_voter(full, image, 2) == said(2, Vote.UNWANTED)
    assert quorum_plan.remove_voter(full, image, 3) == said(3, Vote.UNWANTED), "it never will"
    assert quorum_plan.remove_voter(full, cluster(4, said(2, Vote.UNWANTED)), 2) is None
    with pytest.raises(InvalidRequest, match="that would leave 2 voters; add a broker first"):
        quorum_plan.remove_voter(voters(0, 1, 2), image, 2)
    with pytest.raises(InvalidRequest, match="it is the only voter"):
        quorum_plan.remove_voter(voters(0), image, 0)
    with pytest.raises(InvalidRequest, match="broker 9 is not registered"):
        quorum_plan.remove_voter(full, image, 9)


def test_a_vote_is_taken_away_while_the_one_in_its_place_is_there_already() -> None:
    """`add-voter 3` made four of three; three are left when `remove-voter 1` takes the other one."""
    moving = voters(0, 1, 2, 3)

    assert quorum_plan.remove_voter(moving, cluster(4, said(3, Vote.WANTED)), 1) == said(1, Vote.UNWANTED)
    with pytest.raises(InvalidRequest, match="that would leave 2 voters; add a broker first"):
        quorum_plan.remove_voter(moving, cluster(4, said(0, Vote.UNWANTED)), 1)


def test_what_was_said_of_a_vote_outlives_restarts_and_disks() -> None:
    image = cluster(2, said(1, Vote.UNWANTED), registered(1, 2, disk=9))

    assert image.brokers[1].vote is Vote.UNWANTED


def test_the_only_voter_cannot_go_for_good() -> None:
    quorum_plan.check_can_go(voters(0, 1, 2), 0)
    quorum_plan.check_can_go(voters(0), 1)
    with pytest.raises(InvalidRequest, match="the only voter of the metadata"):
        quorum_plan.check_can_go(voters(0), 0)
