"""What each command does to the image."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from metadata.samples import (
    CLUSTER,
    applied,
    created,
    identifier,
    quorum_cluster,
    registered,
    solo_cluster,
)
from tidelog.model import StreamConfig
from tidelog_broker.core.metadata.apply import apply, share_of
from tidelog_broker.core.metadata.commands import (
    AllocateProducerIds,
    AlterStream,
    ChangeBroker,
    ChangePartitions,
    Command,
    CreateStream,
    DeleteStream,
    FormatCluster,
    NewPartition,
    PartitionChange,
    RecoverCluster,
    ReplicaName,
    ReplicasLost,
    Suspect,
    UnregisterBroker,
)
from tidelog_broker.core.metadata.decisions.elections import elect
from tidelog_broker.core.metadata.image import (
    BrokerState,
    ClusterImage,
    LastKnown,
    PartitionImage,
    Share,
)


def the_partition(image: ClusterImage, number: int = 1, partition: int = 0) -> PartitionImage:
    found = image.partition(identifier(number), partition)
    assert found is not None
    return found


def test_a_cluster_is_formatted_once() -> None:
    image = applied(ClusterImage(), [FormatCluster(CLUSTER, 1), FormatCluster(b"x" * 16, 9)])

    assert (image.cluster_id, image.feature_level, image.version) == (CLUSTER, 1, 2)


def test_a_created_stream_is_found_by_id_and_name_with_all_replicas_in_sync() -> None:
    image = applied(quorum_cluster(), [created(1, "orders", replicas=(2, 0), partitions=2)])

    stream = image.stream_named("orders")
    assert stream is image.streams[identifier(1)]
    assert stream is not None
    assert stream.version == image.version
    assert stream.partitions == (PartitionImage(replicas=(2, 0), isr=(2, 0), leader=2, leader_epoch=1),) * 2
    assert image.partition_count == 2
    assert image.shares == {0: Share(2, 0), 2: Share(2, 2)}


def test_a_second_stream_of_a_name_or_an_id_changes_nothing() -> None:
    image = applied(quorum_cluster(), [created(1, "orders")])

    after = applied(image, [created(2, "orders"), created(1, "other")])

    assert after.streams == image.streams
    assert after.version == image.version + 2


def test_a_deleted_stream_leaves_nothing_behind_and_its_name_is_free() -> None:
    image = applied(quorum_cluster(), [created(1, "orders"), DeleteStream(identifier(1))])

    assert (len(image.streams), len(image.names), image.partition_count, image.shares) == (0, 0, 0, {})
    again = applied(image, [created(2, "orders")]).stream_named("orders")
    assert again is not None
    assert again.id == identifier(2)


def test_altering_takes_the_whole_configuration_and_appends_partitions() -> None:
    image = applied(quorum_cluster(), [created(1, "orders")])
    config = StreamConfig(partitions=2, replication_factor=1, subject="a.>")

    after = applied(image, [AlterStream(identifier(1), config, (NewPartition((1,), 1, 1),))])

    stream = after.stream_named("orders")
    assert stream is not None
    assert stream.config == config
    assert [partition.replicas for partition in stream.partitions] == [(0,), (1,)]
    assert stream.version == after.version
    assert after.partition_count == 2


def test_old_images_stay_as_they_were() -> None:
    old = applied(quorum_cluster(), [created(1, "orders")])
    before = (dict(old.streams), dict(old.names), dict(old.brokers), dict(old.shares), old.version)

    applied(
        old,
        [
            created(2),
            DeleteStream(identifier(1)),
            registered(0, 2),
            ChangePartitions((PartitionChange(identifier(2), 0, leader=None),)),
        ],
    )

    assert (dict(old.streams), dict(old.names), dict(old.brokers), dict(old.shares), old.version) == before


def test_commands_for_streams_that_are_gone_change_nothing_but_the_version() -> None:
    image = quorum_cluster()

    after = applied(
        image,
        [
            DeleteStream(identifier(9)),
            AlterStream(identifier(9), StreamConfig()),
            ChangePartitions((PartitionChange(identifier(9), 0, leader=1),)),
        ],
    )

    assert after.streams == image.streams
    assert after.version == image.version + 3


def test_producer_id_blocks_do_not_overlap() -> None:
    first = apply(quorum_cluster(), AllocateProducerIds(0, 1000), 10)
    second = apply(first, AllocateProducerIds(1, 1000), 11)

    assert (first.next_producer_id, second.next_producer_id) == (1001, 2001)


# --- R10: incarnations


def test_r10_a_new_incarnation_loses_all_leadership_in_the_entry_that_registers_it() -> None:
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1)), created(2, replicas=(1, 0))])

    after = applied(image, [registered(0, 2)])

    assert the_partition(after, 1).leader is None
    assert the_partition(after, 1).isr == (0, 1)
    assert the_partition(after, 1).partition_epoch == 1
    assert the_partition(after, 2) is the_partition(image, 2)
    assert after.shares == {0: Share(2, 0), 1: Share(2, 1)}


def test_r10_the_same_incarnation_keeps_its_leadership_and_state() -> None:
    image = applied(quorum_cluster(), [created(1)])
    moved = dataclasses.replace(registered(0).listeners[0], port=9)

    after = applied(image, [_with_listener(moved)])

    assert the_partition(after).leader == 0
    assert after.brokers[0].listeners == (moved,)
    assert after.brokers[0].state is BrokerState.ACTIVE


def _with_listener(listener: object) -> Command:
    return replace(registered(0), listeners=(listener,))


def test_r10_alone_a_restarted_broker_leads_again_in_the_epoch_of_its_start() -> None:
    image = applied(solo_cluster(1), [created(1), created(2, partitions=3)])

    after = applied(image, [registered(0, 2, solo_epoch=7)])

    assert {part.leader_epoch for stream in after.streams.values() for part in stream.partitions} == {7}
    assert the_partition(after).leader == 0
    assert the_partition(after).partition_epoch == 1
    assert after.brokers[0].solo_epoch == 7


def test_r10_an_epoch_never_goes_back_even_if_the_start_counter_did() -> None:
    image = applied(solo_cluster(5), [created(1), registered(0, 9, solo_epoch=9)])

    after = applied(image, [registered(0, 10, solo_epoch=3)])

    assert the_partition(after).leader_epoch == 10


def test_r10_epochs_that_a_quorum_gives_later_are_greater() -> None:
    image = applied(solo_cluster(4), [created(1), registered(0, 5, solo_epoch=5), registered(0, 6)])

    after = applied(image, [ChangePartitions((PartitionChange(identifier(1), 0, leader=0),))])

    assert the_partition(after).leader_epoch == 6
    assert after.brokers[0].solo_epoch == 0


# --- R6: who may lead


def test_r6_the_entry_that_registers_a_new_disk_ends_isr_eligible_and_last_known() -> None:
    suspect = replace(registered(2, 2), suspects=(Suspect(identifier(1), 0, 1, 20),))
    shrink = PartitionChange(identifier(1), 0, isr=(0,))
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1, 2)), suspect, ChangePartitions((shrink,))])
    before = the_partition(image)
    assert (before.isr, before.eligible, before.last_known) == ((0,), (1,), (LastKnown(2, 1, 20),))

    new_disks = [registered(0, 2, disk=99), registered(1, 2, disk=98), registered(2, 3, disk=97)]
    after = the_partition(applied(image, new_disks))

    assert (after.isr, after.eligible, after.last_known, after.leader) == ((), (), (), None)


def test_r6_an_eligible_member_that_is_elected_joins_the_isr_in_a_new_epoch() -> None:
    change = PartitionChange(identifier(1), 0, isr=())
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1, 2)), ChangePartitions((change,))])

    after = the_partition(applied(image, [ChangePartitions((PartitionChange(identifier(1), 0, leader=1),))]))

    assert (after.leader, after.isr, after.eligible, after.leader_epoch, after.unclean) == (
        1,
        (1,),
        (0, 2),
        2,
        False,
    )


def test_r6_eligibility_ends_when_the_isr_is_back_at_its_minimum() -> None:
    shrink = PartitionChange(identifier(1), 0, isr=(0,))
    grow = PartitionChange(identifier(1), 0, isr=(0, 1))
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1, 2)), ChangePartitions((shrink,))])

    assert the_partition(image).eligible == (1, 2)
    assert the_partition(applied(image, [ChangePartitions((grow,))])).eligible == ()


def test_r6_eligibility_ends_in_the_entry_that_lowers_the_minimum() -> None:
    shrink = PartitionChange(identifier(1), 0, isr=(0,))
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1, 2)), ChangePartitions((shrink,))])
    config = StreamConfig(replication_factor=3, min_insync_replicas=1)

    assert the_partition(applied(image, [AlterStream(identifier(1), config)])).eligible == ()


def test_r6_an_election_clears_what_was_last_known_and_says_whether_it_was_clean() -> None:
    suspect = replace(registered(1, 2), suspects=(Suspect(identifier(1), 0, 1, 10),))
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1)), suspect, registered(0, 2, disk=9)])
    assert the_partition(image).last_known == (LastKnown(1, 1, 10),)
    unclean = PartitionChange(identifier(1), 0, leader=1, unclean=True)

    after = the_partition(applied(image, [ChangePartitions((unclean,))]))

    assert (after.leader, after.isr, after.last_known, after.unclean) == (1, (1,), (), True)


def test_one_entry_moves_the_leaders_of_thousands_of_partitions() -> None:
    image = applied(quorum_cluster(2), [created(n, replicas=(0, 1), partitions=2) for n in range(1, 1001)])
    changes = tuple(PartitionChange(identifier(n), part, leader=1) for n in range(1, 1001) for part in (0, 1))

    after = applied(image, [ChangePartitions(changes)])

    assert after.shares == {0: Share(2000, 0), 1: Share(2000, 2000)}
    assert all(part.leader_epoch == 2 for stream in after.streams.values() for part in stream.partitions)


# --- brokers come and go


def test_one_entry_fences_a_broker_in_every_isr_and_elects_other_leaders() -> None:
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1, 2)), created(2, replicas=(1, 2, 0))])
    election = PartitionChange(identifier(1), 0, leader=1)

    after = applied(image, [ChangeBroker(0, fenced=True, changes=(election,))])

    assert after.brokers[0].state is BrokerState.FENCED
    assert (the_partition(after, 1).isr, the_partition(after, 1).leader) == ((1, 2), 1)
    assert (the_partition(after, 2).isr, the_partition(after, 2).leader) == ((1, 2), 1)
    assert after.shares == share_of(after.streams.values())


def test_what_was_decided_about_a_run_that_is_over_changes_nothing() -> None:
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1, 2)), registered(0, 2)])
    over = identifier(1)
    election = PartitionChange(identifier(1), 0, leader=1)

    after = applied(
        image,
        [
            ChangeBroker(0, over, fenced=True, changes=(election,)),
            ReplicasLost(0, over, (ReplicaName(identifier(1), 0),), (election,)),
            ChangeBroker(77, fenced=True),
            UnregisterBroker(77, (election,)),
        ],
    )

    assert (after.brokers, after.streams) == (image.brokers, image.streams)


def test_a_registration_ends_fence_and_stop_but_not_a_cordon() -> None:
    flags = ChangeBroker(0, fenced=True, stopping=True, cordoned=True)

    after = applied(quorum_cluster(), [flags, registered(0, 2)]).brokers[0]

    assert (after.fenced, after.stopping, after.cordoned) == (False, False, True)
    assert after.state is BrokerState.CORDONED


def test_a_run_that_is_stopping_stays_so_when_it_registers_again() -> None:
    after = applied(quorum_cluster(), [ChangeBroker(0, stopping=True), registered(0)])

    assert after.brokers[0].state is BrokerState.STOPPING


def test_suspect_and_lost_replicas_count_once_for_each_run() -> None:
    again = replace(
        registered(1, 2),
        suspects=(Suspect(identifier(1), 0, 1, 5),),
        lost=(ReplicaName(identifier(2), 0),),
    )
    image = applied(quorum_cluster(), [created(1, replicas=(0, 1, 2)), created(2, replicas=(0, 1, 2)), again])
    assert [the_partition(image, number).isr for number in (1, 2)] == [(0, 2), (0, 2)]
    assert [the_partition(image, number).last_known for number in (1, 2)] == [(LastKnown(1, 1, 5),), ()]
    joined = ChangePartitions((PartitionChange(identifier(1), 0, isr=(0, 1, 2)),))

    after = applied(image, [joined, again])

    assert the_partition(after).isr == (0, 1, 2)


def test_an_unregistered_broker_is_in_no_set_and_not_in_the_image() -> None:
    suspect = replace(registered(2, 2), suspects=(Suspect(identifier(2), 0, 1, 5),))
    image = applied(
        quorum_cluster(), [created(1, replicas=(2, 0, 1)), created(2, replicas=(0, 1, 2)), suspect]
    )

    after = applied(image, [UnregisterBroker(2)])

    assert 2 not in after.brokers
    assert (the_partition(after, 1).isr, the_partition(after, 1).leader) == ((0, 1), None)
    assert the_partition(after, 2).last_known == ()


def test_a_log_lost_while_running_takes_the_broker_out_of_that_partition_only() -> None:
    image = applied(quorum_cluster(), [created(1, replicas=(1, 0, 2), partitions=2)])
    lost = ReplicasLost(1, identifier(1001), (ReplicaName(identifier(1), 0),))

    after = applied(image, [lost])

    assert (the_partition(after).isr, the_partition(after).leader) == ((0, 2), None)
    assert the_partition(after, 1, 1) is the_partition(image, 1, 1)


def test_changes_that_do_not_fit_are_passed_over() -> None:
    image = applied(quorum_cluster(4), [created(1, replicas=(0, 1, 2))])

    after = applied(
        image,
        [
            ChangePartitions(
                (
                    PartitionChange(identifier(1), 0, leader=3),
                    PartitionChange(identifier(1), 0, isr=(0, 3)),
                    PartitionChange(identifier(1), 7, leader=1),
                )
            )
        ],
    )

    assert after.streams[identifier(1)].partitions == image.streams[identifier(1)].partitions


# --- everything at once

numbers = st.integers(1, 5)
brokers = st.integers(0, 2)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        created, numbers, st.sampled_from(["", "a", "b"]), replicas=st.permutations([0, 1, 2]).map(tuple)
    ),
    st.builds(lambda n: DeleteStream(identifier(n)), numbers),
    st.builds(lambda b, run, disk: registered(b, run, disk=disk), brokers, numbers, numbers),
    st.builds(lambda count: AllocateProducerIds(0, count), numbers),
    st.builds(
        lambda n, leader, isr: ChangePartitions((PartitionChange(identifier(n), 0, leader=leader, isr=isr),)),
        numbers,
        st.none() | brokers,
        st.lists(brokers, unique=True).map(tuple),
    ),
)


@given(st.lists(commands, max_size=40))
@settings(max_examples=200)
def test_whatever_happens_the_image_agrees_with_itself(history: list[Command]) -> None:
    image = quorum_cluster()
    epochs: dict[bytes, int] = {}
    for command in history:
        before = image
        image = apply(image, command, image.version + 1)
        assert dict(image.names) == {stream.name: stream.id for stream in image.streams.values()}
        assert image.shares == share_of(image.streams.values())
        assert image.partition_count == sum(len(stream.partitions) for stream in image.streams.values())
        for stream in image.streams.values():
            for partition in stream.partitions:
                assert partition.leader is None or partition.leader in partition.isr
                assert not set(partition.eligible) & set(partition.isr)
            old = before.partition(stream.id, 0)
            new = stream.partitions[0]
            if old is None or isinstance(command, CreateStream):
                epochs[stream.id] = new.leader_epoch
            elif new is not old:
                assert new == old or new.partition_epoch == old.partition_epoch + 1
                assert new.leader_epoch >= epochs[stream.id]
                epochs[stream.id] = new.leader_epoch


def test_m2a_a_forced_recovery_takes_what_was_given_out_further_and_nobody_leads() -> None:
    image = applied(
        quorum_cluster(),
        [created(1, replicas=(0, 1, 2)), created(2, replicas=(1,)), AllocateProducerIds(0, 1000)],
    )

    after = applied(image, [RecoverCluster(identifier(9), epoch_stride=1000, producer_id_stride=5000)])

    assert after.next_producer_id == image.next_producer_id + 5000
    for stream in image.streams.values():
        (before,), (now,) = stream.partitions, after.streams[stream.id].partitions
        assert (now.leader_epoch, now.partition_epoch) == (
            before.leader_epoch + 1000,
            before.partition_epoch + 1000,
        )
        assert now == replace(
            before, leader=None, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch
        ), "replicas and the ISR stay"
    assert {broker: share.leaders for broker, share in after.shares.items()} == {0: 0, 1: 0, 2: 0}
    elected = applied(after, [ChangePartitions(elect(after))])
    assert {one.partitions[0].leader_epoch for one in elected.streams.values()} == {1002}
