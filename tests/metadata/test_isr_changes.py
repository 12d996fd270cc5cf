"""R4: a compare-and-set of who is in sync, and refusals that decide nothing by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog_broker.core.metadata.commands import ChangeBroker, ChangePartitions, Command, PartitionChange
from tidelog_broker.core.metadata.decisions.isr_changes import (
    Accepted,
    IsrProposal,
    Member,
    Refusal,
    Refused,
    change_isr,
)
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage

S = identifier(1)


def cluster(*commands: Command, replicas: tuple[int, ...] = (0, 1, 2)) -> ClusterImage:
    return applied(quorum_cluster(4), [created(1, replicas=replicas), *commands])


def the_partition(image: ClusterImage) -> PartitionImage:
    return image.streams[S].partitions[0]


def shrunk(*isr: int) -> ChangePartitions:
    return ChangePartitions((PartitionChange(S, 0, isr=isr),))


def member(broker: int, run: int = 1) -> Member:
    return Member(broker, identifier(1000 * broker + run))


def proposal(image: ClusterImage, *isr: Member, proposer: Member | None = None, **fields: Any) -> IsrProposal:
    now = the_partition(image)
    # As a leader knows them that sees this image.
    isr = tuple(one._replace(assignment=now.assignment_of(one.broker)) for one in isr)
    said = IsrProposal(proposer or member(0), S, 0, now.leader_epoch, now.partition_epoch, isr)
    return said._replace(**fields)


def proposed(image: ClusterImage, said: IsrProposal) -> tuple[PartitionImage, Accepted | Refused]:
    command, (result,) = change_isr(image, [said])
    return the_partition(applied(image, [command] if command else [])), result


def refusal(image: ClusterImage, said: IsrProposal) -> Refusal:
    _, result = proposed(image, said)
    assert isinstance(result, Refused)
    return result.refusal


def test_r4_what_the_leader_proposes_becomes_the_isr_in_the_order_of_the_replicas() -> None:
    image = cluster(shrunk(0, 2))

    after, result = proposed(image, proposal(image, member(2), member(1), member(0)))

    assert after.isr == (0, 1, 2)
    assert result == Accepted(after.partition_epoch)
    assert after.partition_epoch == the_partition(image).partition_epoch + 1


def test_r6_who_is_proposed_to_leave_below_the_minimum_becomes_eligible() -> None:
    after, _ = proposed(cluster(), proposal(cluster(), member(0)))

    assert (after.isr, after.eligible, after.leader) == ((0,), (1, 2), 0)


def test_r4_a_proposal_that_saw_an_older_partition_is_stale() -> None:
    image = cluster(shrunk(0, 1))

    assert refusal(image, proposal(image, member(0), partition_epoch=0)) is Refusal.STALE


def test_r4_a_second_copy_of_an_accepted_proposal_is_stale_and_decides_nothing() -> None:
    image = cluster(shrunk(0))
    said = proposal(image, member(0), member(1))
    command, results = change_isr(image, [said, said])
    assert command is not None

    assert isinstance(results[0], Accepted)
    assert isinstance(results[1], Refused)
    assert results[1].refusal is Refusal.STALE
    assert the_partition(applied(image, [command])).isr == (0, 1)


@pytest.mark.parametrize(
    ("proposer", "leader_epoch"), [(member(0), 0), (member(1), 1)], ids=["older epoch", "not the leader"]
)
def test_r4_who_does_not_lead_is_fenced(proposer: Member, leader_epoch: int) -> None:
    said = proposal(cluster(), proposer, proposer=proposer, leader_epoch=leader_epoch)

    assert refusal(cluster(), said) is Refusal.FENCED


def test_r10_the_leaders_run_before_this_one_is_fenced() -> None:
    image = cluster(registered(0, 2), ChangePartitions((PartitionChange(S, 0, leader=0),)))

    assert refusal(image, proposal(image, member(0))) is Refusal.FENCED


@pytest.mark.parametrize("field", ["leader_epoch", "partition_epoch"])
def test_r4_a_controller_that_is_behind_the_leader_decides_nothing(field: str) -> None:
    behind: dict[str, Any] = {field: 9}
    said = proposal(cluster(), member(0), **behind)

    command, (result,) = change_isr(cluster(), [said])

    assert command is None
    assert isinstance(result, Refused)
    assert result.refusal is Refusal.AHEAD
    assert result.refusal.ask_again


def test_r4_an_unknown_partition_decides_nothing() -> None:
    said = proposal(cluster(), member(0))
    others = [said._replace(stream_id=identifier(9)), said._replace(partition=7)]

    command, results = change_isr(cluster(), others)

    assert command is None
    assert [isinstance(one, Refused) and one.refusal for one in results] == [Refusal.UNKNOWN] * 2


@pytest.mark.parametrize(
    ("commands", "isr"),
    [
        ([ChangeBroker(1, fenced=True)], (member(0), member(1))),
        ([shrunk(0), ChangeBroker(1, stopping=True)], (member(0), member(1))),
        ([registered(1, 2)], (member(0), member(1))),
        ([], (member(0), member(3))),
        ([], (member(1), member(2))),
        ([], (member(0), member(1), member(1))),
    ],
    ids=[
        "fenced",
        "stopping",
        "another run",
        "no replica",
        "without the leader",
        "twice",
    ],
)
def test_r4_who_may_not_join_voids_every_copy_of_the_proposal(
    commands: list[Command], isr: tuple[Member, ...]
) -> None:
    image = cluster(*commands)
    said = proposal(image, *isr)

    command, (result,) = change_isr(image, [said])

    assert isinstance(result, Refused)
    assert result.refusal is Refusal.INELIGIBLE
    assert command is not None
    after = applied(image, [command, registered(0), registered(1), registered(2)])
    assert the_partition(after).isr == the_partition(image).isr
    assert refusal(after, said) is Refusal.STALE


def test_r4_a_member_that_is_stopping_may_stay() -> None:
    image = cluster(ChangeBroker(1, stopping=True))

    after, _ = proposed(image, proposal(image, member(0), member(1)))

    assert after.isr == (0, 1)


def moving(*, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3, 0)) -> ClusterImage:
    """Broker 3 comes in place of broker 0, which leads."""
    change = PartitionChange(S, 0, replicas=replicas, adding=(3,), removing=(0,), isr=isr)
    return cluster(ChangePartitions((change,)))


def test_a_join_that_completes_a_reassignment_ends_it_in_the_same_entry() -> None:
    change = PartitionChange(S, 0, replicas=(0, 1, 3, 2), adding=(3,), removing=(2,), isr=(0, 1, 2))
    image = cluster(ChangePartitions((change,)))

    after, result = proposed(image, proposal(image, member(0), member(1), member(2), member(3)))

    assert (after.replicas, after.isr, after.leader) == ((0, 1, 3), (0, 1, 3), 0)
    assert (after.adding, after.removing, after.leader_epoch) == ((), (), 1)
    assert result == Accepted(after.partition_epoch)


def test_n5_a_reassignment_that_removes_the_leader_ends_after_it_has_settled() -> None:
    image = moving(isr=(0, 1, 2))

    after, result = proposed(image, proposal(image, member(0), member(1), member(2), member(3)))

    assert (after.replicas, after.isr, after.leader) == ((1, 2, 3, 0), (1, 2, 3, 0), 0)
    assert (after.adding, after.removing, after.leader_epoch) == ((3,), (0,), 1)
    assert result == Accepted(after.partition_epoch)


def test_a_reassignment_ends_only_if_the_new_isr_is_not_below_its_minimum() -> None:
    image = moving(isr=(0,))

    after, _ = proposed(image, proposal(image, member(0), member(3)))

    assert (after.replicas, after.isr, after.leader) == ((1, 2, 3, 0), (3, 0), 0)
