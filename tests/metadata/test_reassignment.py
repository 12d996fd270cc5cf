"""Replicas move, and never so that a partition has fewer complete copies than it needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog.errors import InvalidRequest, PartitionNotFound, StreamNotFound, Unavailable, VersionConflict
from tidelog_broker.core.metadata.commands import (
    ChangeBroker,
    ChangePartitions,
    Command,
    PartitionChange,
    UnregisterBroker,
)
from tidelog_broker.core.metadata.decisions import reassignment
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage

S = identifier(1)


def cluster(*commands: Command, brokers: int = 5) -> ClusterImage:
    return applied(quorum_cluster(brokers), [created(1, replicas=(0, 1, 2)), *commands])


def moved(image: ClusterImage, *target: int) -> ClusterImage:
    command = reassignment.reassign(image, S, {0: target})
    return applied(image, [command] if command else [])


def joined(image: ClusterImage, *isr: int) -> ClusterImage:
    return applied(image, [ChangePartitions((PartitionChange(S, 0, isr=isr),))])


def finished(image: ClusterImage) -> ClusterImage:
    stream = image.streams[S]
    change = reassignment.finished(image, stream, 0, stream.partitions[0])
    return applied(image, [ChangePartitions((change,))] if change else [])


def the_partition(image: ClusterImage) -> PartitionImage:
    return image.streams[S].partitions[0]


def test_the_old_replicas_stay_until_the_added_ones_are_in_sync() -> None:
    image = moved(cluster(), 3, 1, 4)

    begun = the_partition(image)
    assert (begun.replicas, begun.adding, begun.removing) == ((3, 1, 4, 0, 2), (3, 4), (0, 2))
    assert (begun.isr, begun.leader) == ((0, 1, 2), 0)
    assert the_partition(finished(joined(image, 0, 1, 2, 3))).reassigning
    ended = the_partition(finished(joined(image, 0, 1, 2, 3, 4)))
    assert (ended.replicas, set(ended.isr), ended.leader) == ((3, 1, 4), {3, 1, 4}, 3)
    assert not ended.reassigning


def test_another_order_of_the_same_replicas_is_another_preferred_leader_at_once() -> None:
    after = the_partition(moved(cluster(), 2, 0, 1))

    assert (after.replicas, after.reassigning, after.leader) == ((2, 0, 1), False, 0)


def test_another_order_of_replicas_changes_only_the_preferred_leader() -> None:
    before = the_partition(joined(cluster(), 0, 1))
    after = the_partition(moved(joined(cluster(), 0, 1), 2, 1, 0))

    assert after.partition_epoch == before.partition_epoch + 1
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)
    assert (after.eligible, after.adding, after.removing) == (before.eligible, (), ())


def test_another_order_needs_nobody_to_be_there_who_was_not_before() -> None:
    image = cluster(ChangeBroker(2, fenced=True))

    assert the_partition(moved(image, 2, 0, 1)).replicas == (2, 0, 1)


def test_a_reassignment_continues_when_its_target_gets_another_order() -> None:
    before = the_partition(moved(cluster(), 3, 1, 2))
    after = the_partition(moved(moved(cluster(), 3, 1, 2), 1, 2, 3))

    assert after.replicas == (1, 2, 3, 0)
    assert (after.adding, after.removing, after.isr) == (before.adding, before.removing, before.isr)


def test_what_is_so_already_needs_no_entry() -> None:
    assert reassignment.reassign(cluster(), S, {0: (0, 1, 2)}) is None
    assert reassignment.cancel(cluster(), S, [0]) is None


def test_a_cancelled_reassignment_leaves_no_trace() -> None:
    image = joined(moved(cluster(), 3, 1, 2), 0, 1, 2, 3)
    command = reassignment.cancel(image, S, [0])
    assert command is not None

    after = the_partition(applied(image, [command]))

    assert (set(after.replicas), after.isr, after.reassigning) == ({0, 1, 2}, (0, 1, 2), False)


def test_a_cancelled_reassignment_whose_new_replica_leads_elects_an_old_one() -> None:
    image = joined(moved(cluster(), 3, 1, 2), 0, 1, 2, 3)
    image = applied(image, [ChangePartitions((PartitionChange(S, 0, leader=3),))])
    command = reassignment.cancel(image, S, [0])
    assert command is not None

    after = the_partition(applied(image, [command]))

    assert (after.leader, after.isr) == (1, (0, 1, 2))


@pytest.mark.parametrize("isr", [(3, 0), (3,)])
def test_copies_that_are_needed_now_are_not_given_up(isr: Sequence[int]) -> None:
    image = moved(cluster(), 3, 1, 2)
    image = applied(
        image,
        [ChangePartitions((PartitionChange(S, 0, isr=(0, 1, 2, 3)),)),
         ChangePartitions((PartitionChange(S, 0, isr=tuple(isr), leader=3),))],
    )  # fmt: skip

    with pytest.raises(Unavailable, match="stream-1/0 still needs its replicas on these brokers: "):
        reassignment.cancel(image, S, [0])


def test_copies_are_needed_by_the_minimum_that_comes_back_with_the_others() -> None:
    """With one copy to come the minimum is one; called off, it is two again (seed 3267)."""
    image = joined(moved(cluster(), 3), 0, 3)
    assert image.streams[S].config.min_insync_effective == 1

    with pytest.raises(
        Unavailable,
        match="still needs its replicas on these brokers: 3; without them fewer than 2 replicas",
    ):
        reassignment.cancel(image, S, [0])


def test_a_target_takes_the_place_of_the_one_before() -> None:
    after = the_partition(moved(moved(cluster(), 3, 1, 2), 4, 1, 2))

    assert (after.replicas, after.adding, after.removing) == ((4, 1, 2, 0), (4,), (0,))


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ((), InvalidRequest, "must be 1 to 15 different brokers"),
        ((0, 1, 1), InvalidRequest, "must be 1 to 15 different brokers"),
        ((0, 1, 77), InvalidRequest, "broker 77 is not registered"),
        ((0, 1, 3), InvalidRequest, "broker 3 is cordoned"),
        ((0, 1, 4), Unavailable, "broker 4 is fenced"),
    ],
)
def test_a_target_that_cannot_be_is_refused(
    target: tuple[int, ...], error: type[Exception], words: str
) -> None:
    image = cluster(ChangeBroker(3, cordoned=True), ChangeBroker(4, fenced=True))

    with pytest.raises(error, match=words):
        reassignment.reassign(image, S, {0: target})


def test_what_is_not_there_is_not_moved() -> None:
    with pytest.raises(StreamNotFound):
        reassignment.reassign(cluster(), identifier(9), {0: (0, 1, 2)})
    with pytest.raises(PartitionNotFound):
        reassignment.cancel(cluster(), S, [1])


def test_a_cordon_is_set_and_lifted_once() -> None:
    image = cluster()
    command = reassignment.cordon(image, 1, True)

    assert command == ChangeBroker(1, cordoned=True)
    assert reassignment.cordon(image, 1, False) is None
    assert reassignment.cordon(applied(image, [command]), 1, False) == ChangeBroker(1, cordoned=False)
    with pytest.raises(InvalidRequest, match="broker 9 is not registered"):
        reassignment.cordon(image, 9, True)


def test_a_cordon_that_rests_on_a_version_which_is_over_is_refused() -> None:
    image = cluster()
    version = image.brokers[1].version

    begun = applied(image, [reassignment.cordon(image, 1, True, expected_version=version)])

    assert begun.brokers[1].version == begun.version > version
    for cordoned in (True, False):
        with pytest.raises(
            VersionConflict, match=f"broker 1 is at version {begun.version}, not at {version}"
        ):
            reassignment.cordon(begun, 1, cordoned, expected_version=version)


def test_who_says_that_a_broker_stays_makes_void_what_another_was_about_to_say() -> None:
    image = cluster()
    seen_by_both = image.brokers[1].version

    told = applied(image, [reassignment.cordon(image, 1, False, expected_version=seen_by_both)])

    assert not told.brokers[1].cordoned
    with pytest.raises(VersionConflict):
        reassignment.cordon(told, 1, True, expected_version=seen_by_both)


def test_a_brokers_version_outlives_its_restarts_and_is_another_when_it_comes_anew() -> None:
    image = cluster()
    version = image.brokers[1].version

    restarted = applied(image, [registered(1, run=2), ChangeBroker(1, fenced=True)])
    again = applied(image, [UnregisterBroker(1), registered(1)])

    assert restarted.brokers[1].version == version
    assert again.brokers[1].version == again.version > version


def test_a_target_with_an_old_partition_epoch_refuses_the_whole_request() -> None:
    image = applied(cluster(), [created(2, replicas=(0, 1, 2))])
    other = identifier(2)
    epochs = {(key, 0): image.streams[key].partitions[0].partition_epoch for key in (S, other)}
    targets = {(S, 0): (0, 1, 3), (other, 0): (0, 1, 4)}
    changed = joined(image, 0, 1)

    assert reassignment.reassign_all(image, targets, epochs) is not None
    with pytest.raises(VersionConflict, match="is in partition epoch 1, not in 0; read it again"):
        reassignment.reassign_all(changed, targets, epochs)


def test_a_target_that_is_so_already_may_be_asked_for_again() -> None:
    image = cluster()
    epochs = {(S, 0): the_partition(image).partition_epoch}

    begun = moved(image, 3, 1, 4)

    assert reassignment.reassign_all(begun, {(S, 0): (3, 1, 4)}, epochs) is None


def test_a_drained_broker_is_cordoned_and_everything_on_it_begins_to_move() -> None:
    image = applied(cluster(brokers=4), [created(2, replicas=(1, 2, 3)), created(3, replicas=(2, 0, 3))])
    command = reassignment.drain(image, 2)
    assert command is not None

    after = applied(image, [command])

    assert after.brokers[2].cordoned
    targets = {stream.name: set(stream.partitions[0].target) for stream in after.streams.values()}
    assert targets == {"stream-1": {0, 1, 3}, "stream-2": {0, 1, 3}, "stream-3": {0, 1, 3}}
    assert reassignment.drain(after, 2) is None


def test_a_drain_goes_on_where_its_first_entry_ended() -> None:
    image = applied(cluster(brokers=4), [created(2, replicas=(1, 2, 3)), created(3, replicas=(2, 0, 3))])
    steps = 0
    while (command := reassignment.drain(image, 2, moves_max=1)) is not None:
        image = applied(image, [command])
        steps += 1

    assert steps == 3
    assert all(2 not in stream.partitions[0].target for stream in image.streams.values())


def test_an_empty_broker_is_only_cordoned() -> None:
    assert reassignment.drain(cluster(), 4) == ChangeBroker(4, cordoned=True)


def test_a_broker_that_nobody_can_stand_in_for_is_not_drained() -> None:
    with pytest.raises(InvalidRequest, match="no broker is left for a replica of broker 2"):
        reassignment.drain(cluster(brokers=3), 2)
    with pytest.raises(InvalidRequest, match="no broker is left"):
        reassignment.drain(cluster(ChangeBroker(3, fenced=True), brokers=4), 2)


def test_a_drain_spreads_over_racks() -> None:
    racks = [registered(broker, rack="abcab"[broker]) for broker in range(5)]
    image = cluster(*racks)

    command = reassignment.drain(image, 2)

    assert command is not None
    target = applied(image, [command]).streams[S].partitions[0].target
    assert target[:2] == (0, 1)
    assert target[2] in (3, 4)


def test_the_only_broker_cannot_be_drained() -> None:
    with pytest.raises(InvalidRequest, match="broker 0 is the only broker"):
        reassignment.drain(quorum_cluster(1), 0)


def grown(*, copies: tuple[int, ...] = (0, 1, 2)) -> ClusterImage:
    """A stream of two partitions with one copy each, and the first on its way to more."""
    image = applied(quorum_cluster(5), [created(1, replicas=(0,), partitions=2)])
    return moved(image, *copies)


def test_a_partition_gets_more_copies_and_the_minimum_waits_for_the_last_partition() -> None:
    image = joined(grown(), 0, 1, 2)

    image = finished(image)
    assert the_partition(image).replicas == (0, 1, 2)
    assert image.streams[S].config.replication_factor == 1, "the other partition has one copy"
    command = reassignment.reassign(image, S, {1: (2, 1, 0)})
    assert command is not None
    image = applied(image, [command])
    assert image.streams[S].config.min_insync_effective == 1, "no writer is refused meanwhile"
    image = applied(image, [ChangePartitions((PartitionChange(S, 1, isr=(0, 1, 2)),))])
    change = reassignment.finished(image, image.streams[S], 1, image.streams[S].partitions[1])
    assert change is not None
    config = applied(image, [ChangePartitions((change,))]).streams[S].config
    assert (config.replication_factor, config.min_insync_effective) == (3, 2)


def test_a_reassignment_to_more_copies_that_is_cancelled_leaves_the_factor_as_it_was() -> None:
    command = reassignment.cancel(grown(), S, [0])

    assert command is not None
    after = applied(grown(), [command]).streams[S]
    assert (after.partitions[0].replicas, after.config.replication_factor) == ((0,), 1)


def test_a_partition_gets_fewer_copies_and_the_minimum_falls_at_once() -> None:
    image = moved(cluster(), 1)

    assert image.streams[S].config.min_insync_effective == 1
    ended = the_partition(finished(image))
    assert (ended.replicas, ended.isr, ended.leader, ended.eligible) == ((1,), (1,), 1, ())


def test_a_minimum_that_falls_with_the_replicas_ends_eligibility() -> None:
    image = applied(cluster(), [ChangePartitions((PartitionChange(S, 0, isr=(0,)),))])
    assert the_partition(image).eligible == (1, 2)

    after = moved(image, 0)

    assert after.streams[S].config.min_insync_effective == 1
    assert the_partition(after).eligible == ()
