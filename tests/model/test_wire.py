"""What crosses the wire comes out as it went in."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import cluster_wire, errors, model, wire
from tidelog_proto import common_pb2

counts = st.integers(0, (1 << 32) - 1)
large = st.integers(0, (1 << 64) - 1)
signed = st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.binary(min_size=16, max_size=16)
texts = st.text(max_size=20)
retentions = st.builds(model.Retention, *[st.none() | large] * 3)
settings = st.builds(
    model.StreamSettings,
    subject=st.none() | texts,
    partitions=st.none() | counts,
    replication_factor=st.none() | counts,
    min_insync_replicas=st.none() | counts,
    durability=st.none() | st.sampled_from(model.Durability),
    retention=st.none() | retentions,
    segment_bytes=st.none() | large,
    segment_age_ms=st.none() | large,
    batch_bytes_max=st.none() | counts,
    timestamp_ahead_ms_max=st.none() | large,
    nats_ack=st.none() | st.sampled_from(model.NatsAck),
    dedupe_window_ms=st.none() | large,
    dedupe_count_max=st.none() | counts,
)
partitions = st.builds(
    model.PartitionDescription,
    counts,
    st.none() | counts,
    counts,
    counts,
    st.lists(counts).map(tuple),
    st.lists(counts).map(tuple),
)
listeners = st.builds(model.Listener, texts, texts, counts)
headers = st.lists(st.tuples(texts, st.none() | st.binary(max_size=9))).map(tuple)


@given(settings)
def test_settings_say_the_same_and_stay_silent_about_the_same(given_settings: model.StreamSettings) -> None:
    assert wire.settings_from_proto(wire.settings_to_proto(given_settings)) == given_settings


@given(settings)
def test_a_whole_configuration_arrives_whole(given_settings: model.StreamSettings) -> None:
    config = dataclasses.replace(model.StreamConfig(), **given_settings.given())  # type: ignore[arg-type]

    assert wire.config_from_proto(wire.config_to_proto(config)) == config


@given(
    st.builds(
        model.StreamDescription,
        texts,
        ids,
        st.just(model.StreamConfig()),
        large,
        signed,
        st.lists(partitions, max_size=3).map(tuple),
        st.dictionaries(texts, texts, max_size=3),
    )
)
def test_streams_arrive(stream: model.StreamDescription) -> None:
    assert wire.stream_from_proto(wire.stream_to_proto(stream)) == stream


@given(
    st.builds(
        model.BrokerDescription, counts, ids, ids, st.lists(listeners, max_size=3).map(tuple), texts, texts
    )
)
def test_brokers_arrive(broker: model.BrokerDescription) -> None:
    assert wire.broker_from_proto(wire.broker_to_proto(broker)) == broker


@given(
    st.builds(
        model.ReplicaDescription,
        texts,
        ids,
        counts,
        counts,
        st.booleans(),
        texts,
        large,
        large,
        large,
        large,
        large,
        counts,
        st.lists(st.tuples(large, large), max_size=2).map(tuple),
        st.booleans(),
        texts,
        counts,
        st.booleans(),
    )
)
def test_replicas_arrive(replica: model.ReplicaDescription) -> None:
    assert cluster_wire.replica_from_proto(cluster_wire.replica_to_proto(replica)) == replica


@given(st.none() | counts)
def test_clusters_arrive(controller: int | None) -> None:
    partition = model.PartitionDescription(2, None, 3, 4, (3, 1, 0), (0, 1), (5,), (3,), (0,))
    cluster = model.ClusterDescription(
        b"c" * 16, 7, controller, (0, 1), (), "0.1", 3, 4,
        standings=(
            model.BrokerStanding(1, "draining", True, True, "wanted", 5, 2, 1, 77),
            model.BrokerStanding(2, "fenced"),
        ),
        under_replicated_count=5, leaderless_count=6, below_minimum_count=7, reassigning_count=8,
        troubled=(model.PartitionStanding("orders", b"o" * 16, partition, 2),),
    )  # fmt: skip

    assert cluster_wire.cluster_from_proto(cluster_wire.cluster_to_proto(cluster)) == cluster


def test_whether_a_broker_may_stop_arrives() -> None:
    answer = model.StopAnswer(False, (model.StopHindrance("orders", 3, "too few in sync", True),), 9)

    assert cluster_wire.stop_answer_from_proto(cluster_wire.stop_answer_to_proto(answer)) == answer


@given(large, st.none() | counts)
def test_positions_arrive_with_their_epoch_or_without(offset: int, epoch: int | None) -> None:
    position = model.Position(offset, epoch)

    assert wire.position_from_proto(wire.position_to_proto(position)) == position


@given(
    st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9), headers, st.none() | texts, signed
)
def test_records_keep_the_difference_between_nothing_and_empty(
    key: bytes | None, value: bytes | None, pairs: model.Headers, subject: str | None, timestamp_us: int
) -> None:
    record = model.Record(5, key, value, pairs, subject, timestamp_us, 2, 9, "orders", 1)

    assert wire.record_from_proto(wire.record_to_proto(record), "orders", 1) == record


def test_receipts_arrive() -> None:
    receipt = model.Receipt(3, 10, 12, 4, 99, True)

    assert wire.receipt_from_proto(wire.receipt_to_proto(receipt), 3) == receipt


@pytest.mark.parametrize(
    "cls",
    [errors.InvalidRequest, errors.StreamExists, errors.DiskFull, errors.TimedOut, errors.StorageFailed],
)
def test_errors_keep_their_type_facts_and_advice(cls: type[errors.TidelogError]) -> None:
    error = cls("a sentence", retry_after_ms=5, field="x")

    found = wire.error_from_proto(wire.error_to_proto(error))

    assert type(found) is cls
    assert (found.message, found.details, found.retry_after_ms) == ("a sentence", {"field": "x"}, 5)


def test_an_error_code_of_a_later_version_is_an_internal_error_with_its_sentence() -> None:
    message = common_pb2.Error(code=999, message="new", definite=True)  # type: ignore[arg-type]

    found = wire.error_from_proto(message)

    assert isinstance(found, errors.InternalError)
    assert str(found) == "new"


def test_an_enum_value_of_a_later_version_is_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match="durability has the value 9"):
        wire.settings_from_proto(common_pb2.StreamConfig(durability=9))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        model.StreamSettings(partitions=-1),
        model.StreamSettings(partitions=1 << 40),
        model.StreamSettings(retention=model.Retention(bytes=-5)),
    ],
)
def test_a_number_that_does_not_fit_its_field_is_refused_with_its_name(wrong: model.StreamSettings) -> None:
    with pytest.raises(errors.InvalidRequest, match="which is not allowed"):
        wire.settings_to_proto(wrong)


def test_an_identifier_of_the_wrong_length_is_refused() -> None:
    assert wire.id_from_proto(b"i" * 16) == b"i" * 16
    with pytest.raises(errors.InvalidRequest, match="stream_id has 3 bytes"):
        wire.id_from_proto(b"abc")
