"""Sinks in the image: names, runs, batches (S3)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata.samples import applied, created, identifier, quorum_cluster
from tidelog.errors import FencedProducer, InvalidRequest, ResourceExhausted, StreamNotFound, Unavailable
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import (
    AllocateProducerIds,
    Command,
    DeleteStream,
    OpenSink,
    RaiseFeatureLevel,
    RecoverCluster,
)
from tidelog_broker.core.metadata.decisions import sinks as decide
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image, encode_image

STREAM = identifier(1)


def cluster() -> ClusterImage:
    return applied(
        quorum_cluster(),
        [
            RaiseFeatureLevel(3),
            created(1, "orders", replicas=(0, 1, 2), partitions=2),
            created(2, "other", replicas=(0,)),
            AllocateProducerIds(0, 100),
        ],
    )


def opened(
    image: ClusterImage,
    name: str = "copy",
    *,
    run: int,
    batch_id: int = 0,
    stream_id: bytes = STREAM,
    now_us: int = 50,
    once: bool = False,
) -> ClusterImage:
    command = decide.open_sink(
        image, name, run=run, batch_id=batch_id, stream_id=stream_id, now_us=now_us, once=once
    )
    return image if command is None else apply(image, command, image.version + 1)


def test_s3_sinks_get_numbers_of_their_own() -> None:
    image = opened(opened(cluster(), "a", run=1), "b", run=2)

    assert [image.sinks[name].number for name in ("a", "b")] == [1, 2]
    assert image.sink_numbered(2) == image.sinks["b"]
    assert image.sink_numbered(3) is None


def test_s3_a_later_run_keeps_what_was_decided_for_the_batch() -> None:
    first = opened(cluster(), run=1, now_us=50)
    stream = first.streams[STREAM]
    more = replace(stream, partitions=stream.partitions * 2)
    grown = replace(first, streams=first.streams.set(STREAM, more))

    again = opened(grown, run=5, now_us=90)
    following = opened(again, run=6, batch_id=1, now_us=99)

    sink = again.sinks["copy"]
    assert (sink.run, sink.batch_us, sink.partitions) == (5, 50, 2)
    sink = following.sinks["copy"]
    assert (sink.run, sink.batch_id, sink.batch_us, sink.partitions) == (6, 1, 99, 4)


def test_s3_opening_again_in_the_same_run_changes_nothing() -> None:
    image = opened(cluster(), run=1)

    assert decide.open_sink(image, "copy", run=1, batch_id=0, stream_id=STREAM, now_us=99) is None


def test_s3_earlier_runs_and_batches_are_refused() -> None:
    image = opened(cluster(), run=7, batch_id=3)

    with pytest.raises(FencedProducer, match="run 6 of sink 'copy' is over"):
        opened(image, run=6, batch_id=4)
    with pytest.raises(FencedProducer, match="give it a new sinkId"):
        opened(image, run=8, batch_id=2)


def test_a_sink_keeps_to_its_stream() -> None:
    with pytest.raises(InvalidRequest, match="use another sinkId for another stream"):
        opened(opened(cluster(), run=1), run=2, stream_id=identifier(2))
    with pytest.raises(StreamNotFound):
        opened(cluster(), run=1, stream_id=identifier(9))


def test_runs_that_were_not_given_out_and_bad_batch_ids_are_refused() -> None:
    for run in (0, 101):
        with pytest.raises(InvalidRequest, match="BeginSinkRun"):
            opened(cluster(), run=run)
    with pytest.raises(InvalidRequest, match="between 0 and 4294967295"):
        opened(cluster(), run=1, batch_id=1 << 32)


def test_sinks_wait_until_every_broker_knows_them() -> None:
    image = applied(quorum_cluster(), [created(1, replicas=(0,)), AllocateProducerIds(0, 9)])

    with pytest.raises(Unavailable, match="update all brokers first"):
        opened(replace(image, feature_level=2), run=1)


def test_the_sinks_of_a_deleted_stream_are_forgotten() -> None:
    image = opened(opened(cluster(), "a", run=1), "b", run=2, stream_id=identifier(2))

    after = apply(image, DeleteStream(STREAM), 99)

    assert list(after.sinks) == ["b"]
    assert after.sink_names == {2: "b"}
    assert opened(after, "a", run=3, stream_id=identifier(2)).sinks["a"].number == 3


def test_a_sink_of_one_batch_is_closed_by_its_newest_run_only() -> None:
    image = opened(opened(cluster(), "w", run=1, once=True), "w", run=2)

    with pytest.raises(FencedProducer):
        decide.close_sink(image, "w", run=1)
    command = decide.close_sink(image, "w", run=2)
    assert command is not None
    after = apply(image, command, 99)
    assert (len(after.sinks), after.sink_names, after.next_sink_number) == (0, {}, 2)
    assert decide.close_sink(after, "w", run=2) is None
    with pytest.raises(InvalidRequest, match="only a sink of one batch"):
        decide.close_sink(opened(cluster(), run=1), "copy", run=1)


def test_too_many_sinks_forget_the_oldest_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "SINKS_MAX", 3)
    image = opened(cluster(), "lasting", run=1)
    image = opened(opened(image, "w1", run=2, once=True), "w2", run=3, once=True)

    image = opened(opened(image, "b", run=4), "c", run=5)

    assert sorted(image.sinks) == ["b", "c", "lasting"]
    assert sorted(image.sink_names.values()) == ["b", "c", "lasting"]
    with pytest.raises(ResourceExhausted, match="3 sinks"):
        opened(image, "d", run=6)


def test_sinks_of_one_batch_whose_jobs_died_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "SINKS_ONCE_MAX", 2)
    image = opened(cluster(), "lasting", run=1)
    for run in range(2, 6):
        image = opened(image, f"w{run}", run=run, once=True)

    assert sorted(image.sinks) == ["lasting", "w4", "w5"]
    assert sorted(opened(image, "other", run=6).sinks) == ["lasting", "other", "w4", "w5"]


def test_a_snapshot_of_the_image_keeps_sinks() -> None:
    image = opened(opened(cluster(), "a", run=1), "w", run=2, batch_id=9, once=True)

    again = decode_image(encode_image(image))

    assert dict(again.sinks) == dict(image.sinks)
    assert (again.sink_names, again.next_sink_number) == (image.sink_names, image.next_sink_number)


def test_m2a_a_forced_recovery_gives_no_number_again() -> None:
    image = opened(cluster(), run=1)
    recovered: Command = RecoverCluster(identifier(9), 1, 1000, sink_number_stride=500)

    after = opened(apply(image, recovered, 50), "new", run=1050)

    assert after.sinks["new"].number == 502
    assert isinstance(
        decide.open_sink(after, "copy", run=1051, batch_id=0, stream_id=STREAM, now_us=1), OpenSink
    )
