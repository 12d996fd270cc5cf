"""R16: each time a broker becomes a replica, the image gives that assignment an id of its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog.errors import UnsupportedVersion
from tidelog_broker.core.metadata.commands import (
    FEATURE_LEVEL,
    ChangePartitions,
    PartitionChange,
    RaiseFeatureLevel,
    ReplicaName,
    ReplicasLost,
    Suspect,
    decode_command,
    encode_command,
)
from tidelog_broker.core.metadata.controller import registration
from tidelog_broker.core.metadata.controller.liveness import Sessions
from tidelog_broker.core.metadata.decisions.isr_changes import (
    IsrProposal,
    Member,
    Refusal,
    Refused,
    change_isr,
)
from tidelog_broker.core.metadata.decisions.reassignment import cancel, reassign
from tidelog_broker.core.metadata.feature_levels import ASSIGNMENTS, FeatureLevels
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage
from tidelog_broker.core.metadata.snapshot import decode_image, encode_image

S = identifier(1)

SNAPSHOT_OF_LEVEL_1 = bytes.fromhex(
    "86aa636c75737465725f6964c41063636363636363636363636363636363a776657273696f6e08ad666561747572655f"
    "6c6576656c01b06e6578745f70726f64756365725f696401a762726f6b6572739485a2696400ab696e6361726e617469"
    "6f6ec41000000000000000000000000000000001ac6469726563746f72795f6964c41000000000000000000000000000"
    "000001a96c697374656e6572739183a46e616d65a865787465726e616ca4686f7374a96c6f63616c686f7374a4706f72"
    "74cd23faa776657273696f6e0285a2696401ab696e6361726e6174696f6ec410000000000000000000000000000003e9"
    "ac6469726563746f72795f6964c41000000000000000000000000000000001a96c697374656e6572739183a46e616d65"
    "a865787465726e616ca4686f7374a96c6f63616c686f7374a4706f7274cd23faa776657273696f6e0385a2696402ab69"
    "6e6361726e6174696f6ec410000000000000000000000000000007d1ac6469726563746f72795f6964c4100000000000"
    "0000000000000000000001a96c697374656e6572739183a46e616d65a865787465726e616ca4686f7374a96c6f63616c"
    "686f7374a4706f7274cd23faa776657273696f6e0485a2696403ab696e6361726e6174696f6ec4100000000000000000"
    "0000000000000bb9ac6469726563746f72795f6964c41000000000000000000000000000000001a96c697374656e6572"
    "739183a46e616d65a865787465726e616ca4686f7374a96c6f63616c686f7374a4706f7274cd23faa776657273696f6e"
    "05a773747265616d739186a46e616d65a873747265616d2d31a26964c41000000000000000000000000000000001a663"
    "6f6e6669678da77375626a656374a0aa706172746974696f6e7301b27265706c69636174696f6e5f666163746f7203b3"
    "6d696e5f696e73796e635f7265706c6963617302aa6475726162696c697479a56673796e63a9726574656e74696f6e83"
    "a66167655f6d73ce240c8400a56279746573c0a86d65737361676573c0ad7365676d656e745f6279746573ce40000000"
    "ae7365676d656e745f6167655f6d73ce240c8400af62617463685f62797465735f6d6178ce00100000b674696d657374"
    "616d705f61686561645f6d735f6d6178ce0036ee80a86e6174735f61636ba6616c77617973b06465647570655f77696e"
    "646f775f6d73ce0001d4c0b06465647570655f636f756e745f6d6178ce000186a0a776657273696f6e06aa6372656174"
    "65645f757305aa706172746974696f6e739185a87265706c6963617393000102a3697372920001a66c656164657200ac"
    "6c65616465725f65706f636801af706172746974696f6e5f65706f636802"
)
"""As software of level 1 wrote it: broker 2 left a partition of brokers 0, 1 and 2, and came again."""


def cluster(*changes: PartitionChange, level: int = FEATURE_LEVEL) -> ClusterImage:
    image = replace(quorum_cluster(4), feature_level=level)
    return applied(
        image, [created(1, replicas=(0, 1, 2)), *(ChangePartitions((change,)) for change in changes)]
    )


def the_partition(image: ClusterImage) -> PartitionImage:
    return image.streams[S].partitions[0]


def moved(*replicas: int) -> PartitionChange:
    isr = tuple(broker for broker in (0, 1) if broker in replicas)
    return PartitionChange(S, 0, replicas=replicas, isr=isr)


def test_the_replicas_that_a_partition_begins_with_have_assignment_0() -> None:
    found = the_partition(cluster())

    assert found.assignments == ()
    assert [found.assignment_of(broker) for broker in found.replicas] == [0, 0, 0]


def test_an_added_replica_gets_the_entrys_partition_epoch_and_others_keep_theirs() -> None:
    image = cluster(moved(0, 1, 3), moved(3, 1, 0, 2))

    found = the_partition(image)

    assert (found.replicas, found.assignments) == ((3, 1, 0, 2), (1, 0, 0, 2))
    assert found.partition_epoch == 2


def test_who_leaves_and_comes_again_is_another_assignment() -> None:
    away = cluster(moved(0, 1))
    back = applied(away, [ChangePartitions((moved(0, 1, 2),))])

    assert the_partition(away).assignments == ()
    assert the_partition(back).assignment_of(2) == 2


def test_a_reassignment_gives_assignments_and_its_end_and_cancellation_keep_them() -> None:
    image = applied(cluster(), [reassign(cluster(), S, {0: (0, 1, 3)})])
    there = the_partition(image)
    assert {broker: there.assignment_of(broker) for broker in there.replicas} == {0: 0, 1: 0, 3: 1, 2: 0}

    cancelled = the_partition(applied(image, [cancel(image, S, [0])]))

    assert cancelled.assignments == ()
    again = applied(image, [cancel(image, S, [0])])
    again = applied(again, [reassign(again, S, {0: (0, 1, 3)})])
    assert the_partition(again).assignment_of(3) == 3


def test_below_the_feature_level_all_assignments_stay_0() -> None:
    image = cluster(moved(0, 1), moved(0, 1, 2), level=ASSIGNMENTS - 1)

    assert the_partition(image).assignments == ()
    raised = applied(image, [RaiseFeatureLevel(ASSIGNMENTS), ChangePartitions((moved(0, 1, 2, 3),))])
    assert the_partition(raised).assignments == (0, 0, 0, 3)


# --- proposals


def proposed(image: ClusterImage, *assignments: tuple[int, int]) -> Refusal | None:
    """What becomes of an ISR of these (broker, assignment)."""
    now = the_partition(image)
    members = tuple(Member(one, image.brokers[one].incarnation, which) for one, which in assignments)
    said = IsrProposal(members[0], S, 0, now.leader_epoch, now.partition_epoch, members)
    _, (result,) = change_isr(image, [said])
    return result.refusal if isinstance(result, Refused) else None


def test_r4_a_proposal_that_means_another_assignment_is_ineligible() -> None:
    image = cluster(moved(0, 1), moved(0, 1, 2))

    assert proposed(image, (0, 0), (1, 0), (2, 0)) is Refusal.INELIGIBLE
    assert proposed(image, (0, 0), (1, 0), (2, 1)) is Refusal.INELIGIBLE
    assert proposed(image, (0, 0), (1, 0), (2, 2)) is None


# --- what a broker says of its replicas


def lost(image: ClusterImage, broker: int, assignment: int) -> PartitionImage:
    name = ReplicaName(S, 0, assignment)
    return the_partition(applied(image, [ReplicasLost(broker, image.brokers[broker].incarnation, (name,))]))


def test_a_loss_of_an_earlier_assignment_is_no_loss_of_this_one() -> None:
    image = cluster(moved(0, 1), moved(0, 1, 2), PartitionChange(S, 0, isr=(0, 1, 2)))
    before = the_partition(image)

    assert lost(image, 2, 0) is before
    assert lost(image, 2, 2).isr == (0, 1)


@pytest.mark.parametrize(("assignment", "known"), [(0, ()), (2, (2,))])
def test_a_suspect_replica_of_an_earlier_assignment_is_out_and_not_last_known(
    assignment: int, known: tuple[int, ...]
) -> None:
    image = cluster(moved(0, 1), moved(0, 1, 2), PartitionChange(S, 0, isr=(0, 1, 2)))
    found = Suspect(S, 0, leader_epoch=1, log_end_offset=9, assignment=assignment)

    after = the_partition(applied(image, [replace(registered(2, 2), suspects=(found,))]))

    assert after.isr == (0, 1)
    assert tuple(one.broker for one in after.last_known) == known


# --- bytes


def test_assignments_survive_a_snapshot_and_cost_no_bytes_where_there_are_none() -> None:
    image = cluster(moved(0, 1), moved(0, 1, 2))

    assert the_partition(decode_image(encode_image(image))).assignments == (0, 0, 2)
    assert b"assignments" not in encode_image(cluster())


def test_a_snapshot_of_earlier_software_is_read_with_assignments_0() -> None:
    image = decode_image(SNAPSHOT_OF_LEVEL_1)

    assert (image.feature_level, the_partition(image).replicas) == (1, (0, 1, 2))
    assert the_partition(image).assignments == ()
    # The ids that are given later are none that was given before.
    after = applied(
        image,
        [
            RaiseFeatureLevel(ASSIGNMENTS),
            *(ChangePartitions((one,)) for one in (moved(0, 1), moved(0, 1, 2))),
        ],
    )
    assert the_partition(after).assignment_of(2) == 4


def test_raising_the_level_survives_its_bytes_and_never_lowers_it() -> None:
    command = RaiseFeatureLevel(2)

    assert decode_command(encode_command(command)) == command
    assert applied(cluster(level=2), [RaiseFeatureLevel(1)]).feature_level == 2


# --- the feature level


def heard(image: ClusterImage, *levels: int) -> FeatureLevels:
    found = FeatureLevels()
    for broker, level in zip(sorted(image.brokers), levels, strict=False):
        found.heard(broker, image.brokers[broker].incarnation, level)
    return found


def test_the_level_is_raised_once_every_registered_broker_understands_it() -> None:
    image = cluster(level=1)

    assert heard(image, 2, 2, 2, 2).next_command(image) == RaiseFeatureLevel(2)
    assert heard(image, 2, 2, 2).next_command(image) is None, "one has said nothing"
    assert heard(image, 2, 2, 1, 2).next_command(image) is None, "one is of an earlier version"
    assert heard(image, 9, 9, 9, 9).next_command(image) == RaiseFeatureLevel(FEATURE_LEVEL)


def test_what_an_earlier_run_said_of_its_software_does_not_count() -> None:
    image = cluster(level=1)
    levels = heard(image, 2, 2, 2, 2)
    older = applied(image, [registered(3, 2)])

    assert levels.next_command(older) is None


def test_software_of_an_earlier_level_is_refused_from_then_on() -> None:
    said = registration.Registration(image_id(), 0, identifier(9), identifier(1), feature_level_max=1)

    with pytest.raises(UnsupportedVersion, match="run a later version"):
        registration.register(cluster(), said, Sessions(), 0)


def image_id() -> bytes:
    return quorum_cluster(0).cluster_id
