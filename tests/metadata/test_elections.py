"""R6: who is elected, in which order, and who is waited for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog.errors import InvalidRequest, PartitionNotFound, StreamNotFound
from tidelog_broker.core.metadata.commands import (
    ChangeBroker,
    ChangePartitions,
    Command,
    PartitionChange,
    Suspect,
    UnregisterBroker,
)
from tidelog_broker.core.metadata.decisions import elections
from tidelog_broker.core.metadata.image import ClusterImage

S = identifier(1)


def cluster(*commands: Command, replicas: tuple[int, ...] = (0, 1, 2)) -> ClusterImage:
    return applied(quorum_cluster(4), [created(1, replicas=replicas), *commands])


def isr(*members: int, leader: int | None = None) -> ChangePartitions:
    return ChangePartitions((PartitionChange(S, 0, isr=members, leader=leader),))


def suspect(broker: int, run: int, epoch: int, end: int) -> Command:
    return replace(registered(broker, run), suspects=(Suspect(S, 0, epoch, end),))


def elected(image: ClusterImage) -> tuple[int | None, bool] | None:
    changes = elections.elect(image)
    if not changes:
        return None
    (change,) = changes
    assert isinstance(change.leader, int)
    return change.leader, change.unclean


def test_r6_the_first_replica_in_sync_is_elected() -> None:
    assert elected(cluster(isr(1, 2), replicas=(2, 0, 1))) == (2, False)


def test_r6_nobody_is_elected_where_somebody_leads() -> None:
    assert elected(cluster()) is None


def test_r6_stopping_and_cordoned_brokers_come_after_the_others_of_the_isr() -> None:
    flags = [ChangeBroker(0, stopping=True), ChangeBroker(1, cordoned=True)]

    assert elected(cluster(isr(0, 1, 2), *flags)) == (2, False)
    assert elected(cluster(isr(0, 1), *flags)) == (0, False)


def test_r6_a_member_of_the_isr_comes_before_an_eligible_one_even_if_it_is_stopping() -> None:
    image = cluster(ChangeBroker(1, stopping=True), isr(1))

    assert image.streams[S].partitions[0].eligible == (0, 2)
    assert elected(image) == (1, False)


def test_r6_an_eligible_member_is_elected_when_the_isr_is_not_there() -> None:
    image = cluster(isr(1), ChangeBroker(1, fenced=True))

    assert image.streams[S].partitions[0].isr == ()
    assert elected(image) == (0, False)


def test_r6_while_somebody_who_has_everything_is_awaited_nobody_else_is_elected() -> None:
    image = cluster(suspect(1, 2, 1, 50), isr(0), ChangeBroker(0, fenced=True), ChangeBroker(2, fenced=True))

    assert image.streams[S].partitions[0].eligible == (2, 0)
    assert elected(image) is None


def test_r6_without_candidates_the_greatest_last_known_leads_an_unclean_epoch() -> None:
    image = cluster(suspect(0, 2, 1, 90), suspect(1, 2, 2, 50), suspect(2, 2, 2, 40))

    assert elected(image) == (1, True)


def test_r6_the_greatest_of_the_last_known_is_waited_for_until_it_is_unregistered() -> None:
    suspects = [suspect(0, 2, 1, 90), suspect(1, 2, 2, 50), suspect(2, 2, 2, 40)]
    image = cluster(*suspects, ChangeBroker(1, fenced=True))

    assert elected(image) is None
    assert elected(applied(image, [UnregisterBroker(1)])) == (2, True)


def test_an_election_reads_only_the_named_partitions_and_bounds_its_changes() -> None:
    image = applied(cluster(isr(0, 1)), [created(2, partitions=3)])
    nobody = tuple(PartitionChange(identifier(2), number, leader=None) for number in range(3))
    image = applied(image, [ChangePartitions(nobody)])

    named = elections.elect(image, [(identifier(2), 1), (identifier(2), 77), (identifier(9), 0)])

    assert [change.partition for change in named] == [1]
    assert len(elections.elect(image)) == 4
    assert len(elections.elect(image, changes_max=2)) == 2


def test_r6_an_unclean_election_is_refused_while_a_clean_candidate_is_there() -> None:
    with pytest.raises(InvalidRequest, match=r"the metadata counts broker 1, .* committed to stream-1/0"):
        elections.elect_unclean(cluster(isr(1)), S, 0, 2)


def test_r6_a_refused_unclean_election_says_what_helps_if_the_replica_is_lost() -> None:
    """The metadata does not know that an only replica is quarantined: it stays one without a log (2c)."""
    with pytest.raises(InvalidRequest) as refused:
        elections.elect_unclean(cluster(isr(1)), S, 0, 1)

    said = str(refused.value)
    assert "broker 1 holds everything" not in said
    assert "the replica on broker 1 is quarantined or halted, no election of that broker helps" in said
    assert '"When something is wrong" in docs/operations.md' in said


def test_r6_an_unclean_election_names_a_replica_that_is_there() -> None:
    image = cluster(isr(1), ChangeBroker(0, fenced=True), ChangeBroker(1, fenced=True))
    image = applied(image, [registered(2, 2, disk=9)])

    for broker in (0, 3, 77):
        with pytest.raises(InvalidRequest, match=f"broker {broker} cannot lead stream-1/0"):
            elections.elect_unclean(image, S, 0, broker)
    after = applied(image, [elections.elect_unclean(image, S, 0, 2)]).streams[S].partitions[0]
    assert (after.leader, after.unclean, after.isr) == (2, True, (2,))


def test_an_election_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(StreamNotFound):
        elections.elect_unclean(cluster(), identifier(9), 0, 2)
    with pytest.raises(PartitionNotFound, match="has only partition 0, not 3"):
        elections.elect_unclean(cluster(), S, 3, 2)


def test_leadership_goes_back_to_the_preferred_leader_once_it_is_in_sync() -> None:
    away = cluster(isr(1, 2, leader=1))
    back = applied(away, [isr(0, 1, 2, leader=1)])

    assert elections.preferred(away) == ()
    assert elections.preferred(back) == (PartitionChange(S, 0, leader=0),)
    assert elections.preferred(back, changes_max=1) == (PartitionChange(S, 0, leader=0),)
    assert elections.preferred(applied(back, [ChangeBroker(0, cordoned=True)])) == ()


def test_a_stopping_broker_hands_over_to_a_member_of_the_isr_and_the_isr_stays() -> None:
    image = cluster(ChangeBroker(0, stopping=True), ChangeBroker(1, cordoned=True))

    changes = elections.hand_over(image, 0)

    assert changes == (PartitionChange(S, 0, leader=2),)
    assert applied(image, [ChangePartitions(changes)]).streams[S].partitions[0].isr == (0, 1, 2)


def test_nothing_is_handed_over_to_eligible_or_stopping_members() -> None:
    alone = cluster(ChangeBroker(0, stopping=True), isr(0, leader=0))
    both = cluster(ChangeBroker(0, stopping=True), ChangeBroker(1, stopping=True), isr(0, 1, leader=0))

    assert elections.hand_over(alone, 0) == ()
    assert elections.hand_over(both, 0) == ()
