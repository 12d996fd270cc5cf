"""What is refused, with which sentence, and what is success without a change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata.samples import applied, created, identifier, quorum_cluster, registered, solo_cluster
from tidelog.errors import (
    FeatureNotImplemented,
    InvalidRequest,
    ResourceExhausted,
    StreamExists,
    StreamNotFound,
    TidelogError,
    Unavailable,
    VersionConflict,
)
from tidelog.model import Durability, Retention, StreamConfig, StreamSettings
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import ChangeBroker, CreateStream, NewPartition
from tidelog_broker.core.metadata.decisions import placing
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.image import ClusterImage, Share


def create(
    image: ClusterImage, name: str, settings: StreamSettings | None = None, *, number: int = 1,
    labels: dict[str, str] | None = None,
) -> CreateStream | None:  # fmt: skip
    return decide.create_stream(
        image, name, settings or StreamSettings(), stream_id=identifier(number), created_us=5, labels=labels
    )


def with_stream(image: ClusterImage, name: str, settings: StreamSettings | None = None) -> ClusterImage:
    command = create(image, name, settings)
    assert command is not None
    return applied(image, [command])


def test_a_stream_on_a_broker_alone_begins_in_the_epoch_of_this_start() -> None:
    command = create(solo_cluster(4), "orders", StreamSettings(subject="orders.>", partitions=2))

    assert command == CreateStream(
        stream_id=identifier(1),
        name="orders",
        config=StreamConfig(subject="orders.>", partitions=2, replication_factor=1),
        partitions=(NewPartition((0,), 0, 4), NewPartition((0,), 0, 4)),
        created_us=5,
    )


def test_on_three_brokers_a_stream_has_three_copies_and_its_leaders_are_spread() -> None:
    command = create(quorum_cluster(3), "orders", StreamSettings(partitions=3))

    assert command is not None
    assert {partition.leader for partition in command.partitions} == {0, 1, 2}
    assert all(set(partition.replicas) == {0, 1, 2} for partition in command.partitions)
    assert all(partition.leader == partition.replicas[0] for partition in command.partitions)


def test_new_streams_go_where_little_is() -> None:
    image = applied(quorum_cluster(2), [created(n, replicas=(0,)) for n in range(1, 4)])

    command = create(image, "orders", StreamSettings(replication_factor=1, partitions=4), number=9)

    assert command is not None
    assert sorted(partition.leader for partition in command.partitions) == [0, 1, 1, 1]


def test_new_partitions_go_to_brokers_that_are_there_and_welcome_them() -> None:
    flags = [ChangeBroker(0, fenced=True), ChangeBroker(1, stopping=True), ChangeBroker(2, cordoned=True)]
    image = applied(quorum_cluster(5), flags)

    command = create(image, "orders", StreamSettings(replication_factor=2, partitions=4))

    assert command is not None
    assert all(set(partition.replicas) == {3, 4} for partition in command.partitions)
    assert all(partition.leader_epoch == 1 for partition in command.partitions)


def test_a_broker_that_is_away_for_a_moment_does_not_make_streams_with_fewer_copies() -> None:
    image = applied(quorum_cluster(3), [ChangeBroker(1, fenced=True)])

    with pytest.raises(
        Unavailable,
        match="3 replicas need 3 brokers, and these are not available now: 1",
    ):
        create(image, "orders")
    with pytest.raises(InvalidRequest, match="there are only 2 brokers"):
        create(image, "orders", StreamSettings(replication_factor=4))
    assert create(image, "orders", StreamSettings(replication_factor=2)) is not None


def test_a_cordoned_broker_does_not_count_for_the_copies_of_a_new_stream() -> None:
    image = applied(quorum_cluster(3), [ChangeBroker(1, cordoned=True)])

    command = create(image, "orders")

    assert command is not None
    assert command.config.replication_factor == 2


def test_creating_again_with_the_same_given_settings_is_success() -> None:
    settings = StreamSettings(subject="a", partitions=2, retention=Retention(bytes=10))
    image = with_stream(solo_cluster(), "orders", settings)

    assert create(image, "orders", settings, number=2) is None
    assert create(image, "orders", StreamSettings(partitions=2), number=2) is None
    assert create(image, "orders", number=2) is None


def test_creating_again_with_other_settings_says_what_differs() -> None:
    image = with_stream(solo_cluster(), "orders", StreamSettings(subject="a", partitions=2))
    other = StreamSettings(
        subject="b", partitions=3, durability=Durability.PAGE_CACHE, retention=Retention(bytes=10)
    )

    with pytest.raises(StreamExists) as raised:
        create(image, "orders", other, labels={"team": "x"})

    assert str(raised.value) == (
        "stream 'orders' exists with other settings: subject is 'a', not 'b'; partitions is 2, not 3; "
        "durability is 'fsync', not 'page-cache'; retention is age_ms 604800000, not bytes 10; "
        "labels are {}, not {'team': 'x'}"
    )


def test_labels_that_are_not_given_do_not_differ() -> None:
    command = create(solo_cluster(), "orders", labels={"b": "2", "a": "1"})
    assert command is not None
    assert list(command.labels) == ["a", "b"]
    image = applied(solo_cluster(), [command])

    assert create(image, "orders", number=2) is None
    assert create(image, "orders", number=2, labels={"a": "1", "b": "2"}) is None


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("a b", StreamSettings(), "is not a valid stream name"),
        ("__cursors", StreamSettings(), "belong to the brokers"),
        ("orders", StreamSettings(subject="a..b"), "is not a NATS subject"),
        ("orders", StreamSettings(partitions=0), "partitions is 0"),
        (
            "orders",
            StreamSettings(replication_factor=3),
            "replication_factor is 3, but there is only 1 broker",
        ),
    ],
)
def test_what_can_never_be_right_is_an_invalid_request(
    name: str, settings: StreamSettings, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        create(solo_cluster(), name, settings)


def test_brokers_may_create_internal_streams() -> None:
    command = decide.create_stream(
        solo_cluster(), "__cursors", StreamSettings(), stream_id=identifier(1), created_us=5, internal=True
    )

    assert command is not None


def test_without_a_broker_a_stream_must_wait() -> None:
    with pytest.raises(Unavailable) as raised:
        create(ClusterImage(), "orders")
    assert raised.value.retriable


def test_more_replicas_than_the_brokers_should_carry_are_refused() -> None:
    image = solo_cluster()
    full = replace(image, shares={0: Share(placing.REPLICAS_PER_BROKER_MAX, 0)})

    with pytest.raises(ResourceExhausted, match="50000 replicas per broker"):
        create(full, "orders")


def test_altering_changes_what_is_given_and_grows_partitions_in_place() -> None:
    image = with_stream(solo_cluster(3), "orders", StreamSettings(subject="a", partitions=1))

    command = decide.alter_stream(image, "orders", StreamSettings(partitions=3, subject=""))

    assert command is not None
    after = applied(image, [command]).stream_named("orders")
    assert after is not None
    assert (after.config.subject, after.config.partitions, len(after.partitions)) == ("", 3, 3)
    assert {partition.leader_epoch for partition in after.partitions} == {3}


def test_n6_a_stream_that_records_a_subject_does_not_grow_meanwhile() -> None:
    image = with_stream(solo_cluster(), "orders", StreamSettings(subject="a", partitions=2))

    with pytest.raises(InvalidRequest, match="cannot grow from 2 to 3 meanwhile"):
        decide.alter_stream(image, "orders", StreamSettings(partitions=3))
    with pytest.raises(InvalidRequest, match="cannot grow"):
        decide.alter_stream(image, "orders", StreamSettings(partitions=3, subject="b"))
    assert decide.alter_stream(
        with_stream(solo_cluster(), "orders"), "orders", StreamSettings(partitions=3, subject="a")
    )


def test_altering_to_what_is_so_already_changes_nothing() -> None:
    image = with_stream(solo_cluster(), "orders", StreamSettings(subject="a"))

    assert decide.alter_stream(image, "orders", StreamSettings(subject="a")) is None


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        (StreamSettings(partitions=1), InvalidRequest, "partitions only grow"),
        (StreamSettings(replication_factor=2), FeatureNotImplemented, "replication factor of 1"),
        (StreamSettings(segment_bytes=4096), InvalidRequest, "a batch never spans segments"),
    ],
)
def test_alterations_that_cannot_be_are_refused(
    settings: StreamSettings, error: type[TidelogError], sentence: str
) -> None:
    image = with_stream(solo_cluster(), "orders", StreamSettings(partitions=2))

    with pytest.raises(error, match=sentence):
        decide.alter_stream(image, "orders", settings)


def test_the_expected_version_guards_against_changes_by_others() -> None:
    image = with_stream(solo_cluster(), "orders")
    stream = image.stream_named("orders")
    assert stream is not None
    change = decide.alter_stream(
        image, "orders", StreamSettings(subject="a"), expected_version=stream.version
    )
    assert change is not None
    changed = applied(image, [change])

    with pytest.raises(VersionConflict) as raised:
        decide.alter_stream(changed, "orders", StreamSettings(subject="b"), expected_version=stream.version)
    assert raised.value.details["version"] == str(changed.version)
    with pytest.raises(VersionConflict):
        decide.delete_stream(changed, "orders", expected_version=stream.version)


def test_an_election_is_no_change_of_the_version() -> None:
    image = with_stream(solo_cluster(), "orders")
    stream = image.stream_named("orders")
    assert stream is not None
    restarted = apply(image, registered(0, 2, solo_epoch=2), image.version + 1)

    assert decide.delete_stream(restarted, "orders", expected_version=stream.version).stream_id == stream.id


def test_a_stream_that_is_not_there_is_not_found() -> None:
    with pytest.raises(StreamNotFound, match="there is no stream 'orders'"):
        decide.alter_stream(solo_cluster(), "orders", StreamSettings())
    with pytest.raises(StreamNotFound):
        decide.delete_stream(solo_cluster(), "orders")


def test_a_stream_created_later_under_the_same_name_is_another_one() -> None:
    image = with_stream(solo_cluster(), "orders")

    with pytest.raises(StreamNotFound, match="another one was created with its name"):
        decide.delete_stream(image, "orders", stream_id=identifier(77))
    assert decide.delete_stream(image, "orders", stream_id=identifier(1)).stream_id == identifier(1)


def test_internal_streams_are_deleted_by_brokers_only() -> None:
    image = applied(solo_cluster(), [created(1, "__cursors")])

    with pytest.raises(InvalidRequest):
        decide.delete_stream(image, "__cursors")
    assert decide.delete_stream(image, "__cursors", internal=True).stream_id == identifier(1)


def test_producer_ids_end_where_those_of_sinks_begin() -> None:
    last = replace(solo_cluster(), next_producer_id=decide.PRODUCER_IDS_END - 10)

    assert decide.allocate_producer_ids(last, 0, 10).count == 10
    with pytest.raises(ResourceExhausted):
        decide.allocate_producer_ids(last, 0, 11)


def placed(image: ClusterImage, *replicas: tuple[int, ...], factor: int = 2) -> CreateStream | None:
    settings = StreamSettings(partitions=2, replication_factor=factor)
    return decide.create_stream(
        image, "orders", settings, stream_id=identifier(1), created_us=5, replicas=replicas
    )


def test_partitions_begin_on_the_brokers_that_are_said_and_the_first_of_each_leads() -> None:
    command = placed(quorum_cluster(4), (3, 1), (0, 3))

    assert command is not None
    assert command.partitions == (NewPartition((3, 1), 3, 1), NewPartition((0, 3), 0, 1))


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [
        ([(0, 1)], "replicas for 1 partitions, but 2 will be made"),
        ([(0, 1), (2,)], "must be 2 different brokers, .* not 2$"),
        ([(0, 1), (2, 2)], "must be 2 different brokers, .* not 2, 2$"),
        ([(0, 1), (2, 9)], r"broker 9 is not registered; registered brokers: 0, 1, 2, 3"),
        ([(0, 1), (2, 3)], r"broker 3 is cordoned and gets no new replicas; choose from 0, 1, 2"),
    ],
)
def test_brokers_that_cannot_hold_a_partition_are_refused(
    replicas: list[tuple[int, ...]], sentence: str
) -> None:
    image = applied(quorum_cluster(4), [ChangeBroker(3, cordoned=True)])

    with pytest.raises(InvalidRequest, match=sentence):
        placed(image, *replicas)


def test_a_broker_that_is_away_is_waited_for() -> None:
    image = applied(quorum_cluster(4), [ChangeBroker(3, fenced=True)])

    with pytest.raises(Unavailable, match="broker 3 is not available now"):
        placed(image, (0, 1), (2, 3))


def test_partitions_that_a_stream_gets_begin_where_it_is_said() -> None:
    image = with_stream(quorum_cluster(3), "orders", StreamSettings(partitions=1, replication_factor=2))

    command = decide.alter_stream(image, "orders", StreamSettings(partitions=2), new_replicas=[(2, 0)])

    assert command is not None
    assert command.new_partitions == (NewPartition((2, 0), 2, 1),)


def test_a_stream_changes_its_owner_and_nothing_else() -> None:
    image = with_stream(quorum_cluster(3), "orders")

    claimed = decide.alter_stream(image, "orders", StreamSettings(), owner="shop/orders")
    assert claimed is not None
    after = applied(image, [claimed])

    before = image.stream_named("orders")
    stream = after.stream_named("orders")
    assert before is not None
    assert stream is not None
    assert (stream.owner, stream.config, stream.partitions) == (
        "shop/orders", before.config, before.partitions,
    )  # fmt: skip
    assert stream.version > before.version
    assert decide.alter_stream(after, "orders", StreamSettings(), owner="shop/orders") is None
    with pytest.raises(InvalidRequest, match="has 1025 bytes; at most 1024 are allowed"):
        decide.alter_stream(after, "orders", StreamSettings(), owner="x" * 1025)
