"""M1, M2: voters grow in pairs, are replaced with their disk, and leave one at a time."""

from __future__ import annotations

import pytest

from metadata.samples import applied, identifier, quorum_cluster, registered
from tidelog.errors import InvalidRequest, Unavailable
from tidelog_broker.core.metadata import quorum_plan
from tidelog_broker.core.metadata.commands import ChangeBroker, Command, UnregisterBroker
from tidelog_broker.core.metadata.image import ClusterImage
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


def test_a_voter_is_added_by_command_once_it_has_caught_up() -> None:
    image, begun = cluster(2), voters(0, learners=(1,))

    assert quorum_plan.add_voter(begun, image, 0, {}) is None
    assert quorum_plan.add_voter(begun, image, 1, {voter(1): True}) == voters(0, 1)
    with pytest.raises(Unavailable, match="broker 1 has not caught up"):
        quorum_plan.add_voter(begun, image, 1, {})
    with pytest.raises(InvalidRequest, match="broker 9 is not registered"):
        quorum_plan.add_voter(begun, image, 9, {})
    replaced = cluster(2, registered(0, 2, disk=9))
    with pytest.raises(Unavailable, match="still votes with the disk it had before"):
        quorum_plan.add_voter(begun, replaced, 0, {voter(0, 9): True})


def test_a_voter_is_removed_by_command_unless_it_is_the_last() -> None:
    image = cluster(3)

    assert quorum_plan.remove_voter(voters(0, 1, 2), image, 2) == voters(0, 1, learners=(2,))
    assert quorum_plan.remove_voter(voters(0, 1, 2), image, 7) is None
    with pytest.raises(InvalidRequest, match="broker 0 is the only voter"):
        quorum_plan.remove_voter(voters(0), image, 0)
