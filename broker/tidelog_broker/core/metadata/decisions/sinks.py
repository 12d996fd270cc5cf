"""Opening and closing sinks: a request becomes a command or a typed error (S3).

Pure, like `streams`. A run is a number that the cluster gave out before (`allocate_producer_ids` gives
ascending numbers). `None` instead of a command means that the image already is as requested.
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import FencedProducer, InvalidRequest, ResourceExhausted, StreamNotFound, Unavailable
from tidelog.model.names import SINK_NAME, SINK_NAME_RULE
from tidelog.records.layout import SINK_BATCH_ID_MAX, SINK_NUMBER_MAX
from tidelog_broker.core.metadata.commands import CloseSink, OpenSink
from tidelog_broker.core.metadata.feature_levels import SINKS
from tidelog_broker.core.metadata.image import ClusterImage, SinkImage

SINKS_MAX: Final = 10_000
"""Sinks of one cluster."""

SINKS_ONCE_MAX: Final = 500
"""Sinks that write one batch only and have not ended. For a new sink the oldest is forgotten: most likely its
job has died. A partition remembers twice as many sinks."""


def open_sink(
    image: ClusterImage,
    name: str,
    *,
    run: int,
    batch_id: int,
    stream_id: bytes,
    now_us: int,
    once: bool = False,
) -> OpenSink | None:
    """The sink writes `batch_id` in `run`: earlier runs and batches of it are over.

    `now_us` becomes the time of a batch that was not opened before. Raises `InvalidRequest`,
    `FencedProducer`, `StreamNotFound`, `ResourceExhausted`, or `Unavailable` during an upgrade.
    """
    if image.feature_level < SINKS:
        raise Unavailable(
            "a broker of this cluster runs a version without sinks; update all brokers first",
            retry_after_ms=5000,
        )
    if SINK_NAME.fullmatch(name) is None:
        raise InvalidRequest(f"the sink's name is {name[:200]!r}; give {SINK_NAME_RULE}")
    if not 0 <= batch_id <= SINK_BATCH_ID_MAX:
        raise InvalidRequest(f"the batch id is {batch_id}; it must be between 0 and {SINK_BATCH_ID_MAX}")
    if not 0 < run < image.next_producer_id:
        raise InvalidRequest(f"run {run} was not given out by this cluster; ask BeginSinkRun for one")
    stream = image.streams.find(stream_id)
    if stream is None:
        raise StreamNotFound(f"there is no stream with id {stream_id[:16].hex()}")
    known = image.sinks.find(name)
    if known is None:
        return OpenSink(
            name=name,
            number=_new_number(image),
            run=run,
            batch_id=batch_id,
            batch_us=now_us,
            stream_id=stream_id,
            partitions=len(stream.partitions),
            once=once,
            forgets=_forgotten(image, once=once),
        )
    _check_known(known, run, batch_id, stream_id)
    if (run, batch_id) == (known.run, known.batch_id):
        return None
    again = batch_id == known.batch_id
    return OpenSink(
        name=name,
        number=known.number,
        run=run,
        batch_id=batch_id,
        batch_us=known.batch_us if again else now_us,
        stream_id=stream_id,
        partitions=known.partitions if again else len(stream.partitions),
        once=known.once,
    )


def close_sink(image: ClusterImage, name: str, *, run: int) -> CloseSink | None:
    """A sink that writes one batch only has written it in `run`. Raises `FencedProducer`,
    `InvalidRequest`."""
    known = image.sinks.find(name)
    if known is None:
        return None
    if run != known.run:
        raise _over(known, run)
    if not known.once:
        raise InvalidRequest(
            f"sink {name!r} writes more than one batch; only a sink of one batch can be closed"
        )
    return CloseSink(name)


def _check_known(known: SinkImage, run: int, batch_id: int, stream_id: bytes) -> None:
    if known.stream_id != stream_id:
        raise InvalidRequest(
            f"sink {known.name!r} writes to another stream than {stream_id.hex()}; use another sinkId for "
            "another stream"
        )
    if run < known.run:
        raise _over(known, run)
    if batch_id < known.batch_id:
        raise FencedProducer(
            f"sink {known.name!r} has begun batch {known.batch_id}, so batch {batch_id} can no longer be "
            f"written; if the query has a new checkpoint, give it a new sinkId",
            batch_id=known.batch_id,
        )


def _over(known: SinkImage, run: int) -> FencedProducer:
    return FencedProducer(
        f"run {run} of sink {known.name!r} is over, because run {known.run} has begun; another attempt of "
        f"the query writes now",
        run=known.run,
    )


def _new_number(image: ClusterImage) -> int:
    if image.next_sink_number > SINK_NUMBER_MAX:
        raise ResourceExhausted("all numbers of sinks are in use")
    return image.next_sink_number


def _forgotten(image: ClusterImage, *, once: bool) -> str:
    """The sink that makes room for a new one, which writes one batch only or not; empty: there is room."""
    of_one_batch = [sink for sink in image.sinks.values() if sink.once]
    if len(image.sinks) < SINKS_MAX and not (once and len(of_one_batch) >= SINKS_ONCE_MAX):
        return ""
    oldest = min(of_one_batch, key=lambda sink: sink.run, default=None)
    if oldest is None:
        raise ResourceExhausted(
            f"this cluster has {len(image.sinks)} sinks, and no more are allowed; use the sinkId of an "
            f"earlier sink"
        )
    return oldest.name
