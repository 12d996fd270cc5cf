"""The options of batch writes and streaming writes, checked before any request to a broker.

An unknown option is refused, as `options` does for reads. Pure: `sink` passes the options on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from tidelog.errors import InvalidRequest
from tidelog.model.names import SINK_NAME, SINK_NAME_RULE
from tidelog.records.layout import SINK_BATCH_ID_MAX
from tidelog_spark.option_values import Given
from tidelog_spark.servers import NAMES as SERVER_NAMES
from tidelog_spark.servers import Servers, servers_in

COMPRESSIONS: Final = ("none", "lz4", "zstd")

NAMES: Final = (*SERVER_NAMES, "stream", "sinkId", "sinkBatchId", "compression")

_OF_SPARK: Final = ("checkpointlocation", "queryname", "outputmode")
"""Options that Spark itself reads and passes on."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of one write. Picklable: tasks get it from the driver."""

    servers: Servers
    stream: str
    sink_id: str
    """Names the sink for good. Empty: the id of the streaming query, or of this one batch write."""
    sink_batch_id: int | None
    """Numbers a batch write of a sink with `sink_id`; None: it is not numbered."""
    compression: Literal["none", "lz4", "zstd"]


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """The options in `given`, whose names are compared without case.

    Raises `InvalidRequest` with one sentence about the first value that is not allowed.
    """
    ours = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    values = Given(ours, NAMES, refusal)
    stream = values.text("stream")
    if not stream:
        raise InvalidRequest("option stream is missing; name the stream to write to, for example 'orders'")
    sink_id = values.text("sinkId")
    if sink_id is not None and SINK_NAME.fullmatch(sink_id) is None:
        raise values.wrong("sinkId", SINK_NAME_RULE)
    return SinkOptions(
        servers=servers_in(values),
        stream=stream,
        sink_id=sink_id or "",
        sink_batch_id=values.number("sinkBatchId", at_least=0, at_most=SINK_BATCH_ID_MAX),
        compression=cast(
            Literal["none", "lz4", "zstd"], values.choice("compression", COMPRESSIONS, default="none")
        ),
    )


def refusal(name: str) -> str | None:
    """The sentence for an option of Spark's Kafka connector that a write does not take."""
    if name.lower() == "topic":
        return "option 'topic' is not known; name the stream to write to with 'stream'"
    if name.lower().startswith("kafka."):
        return f"option {name!r} is for Kafka; the options of a write are {', '.join(NAMES)}"
    return None


def check_batch_write(options: SinkOptions) -> SinkOptions:
    """The options; raises `InvalidRequest` if a batch write cannot have them."""
    if bool(options.sink_id) != (options.sink_batch_id is not None):
        raise InvalidRequest(
            "a batch write takes sinkId and sinkBatchId together, or neither: with both, a write that is "
            "repeated with the same numbers writes no row twice"
        )
    return options


def check_stream_write(options: SinkOptions) -> SinkOptions:
    """The options; raises `InvalidRequest` if a streaming query cannot have them."""
    if options.sink_batch_id is not None:
        raise InvalidRequest("sinkBatchId is for df.write; a streaming query numbers its batches itself")
    return options
