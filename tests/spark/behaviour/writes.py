"""The table of behaviour of `df.write` and `df.writeStream`: each option of docs/spark.md."""

from __future__ import annotations

from spark.behaviour.case import Bad, Case, Table, Written
from spark.behaviour.tls_files import TLS_OPTIONS_OF_WRITES
from tidelog.model.names import SINK_NAME_RULE
from tidelog_spark.servers import SERVERS
from tidelog_spark.sink_options import NAMES

_TOGETHER = (
    "a batch write takes sinkId and sinkBatchId together, or neither: with both, a write that is repeated "
    "with the same numbers writes no row twice"
)

WRITES: Table = {
    SERVERS: Case(
        good=[Written({})],
        bad=[
            Bad(
                {SERVERS: " , "},
                "option tidelog.bootstrap.servers is missing; give the address of a broker, for example "
                "localhost:9210",
            )
        ],
    ),
    **TLS_OPTIONS_OF_WRITES,
    "stream": Case(
        good=[Written({})],
        bad=[
            Bad(
                {"stream": " "}, "option stream is missing; name the stream to write to, for example 'orders'"
            ),
            *(
                Bad(
                    {"stream": "payments"},
                    "there is no stream payments; create it, or correct the name in stream",
                    streaming=streaming,
                )
                for streaming in (False, True)
            ),
        ],
    ),
    "compression": Case(
        good=[
            Written({"compression": "none"}),
            Written({"compression": "LZ4"}, compression=1),
            Written({"compression": "zstd"}, compression=2),
        ],
        bad=[Bad({"compression": "gzip"}, "compression is 'gzip'; it must be 'none' or 'lz4' or 'zstd'")],
    ),
    "sinkId": Case(
        good=[Written({"sinkId": "nightly", "sinkBatchId": "0"}, times=2)],
        bad=[
            Bad({"sinkId": "nightly"}, _TOGETHER),
            Bad(
                {"sinkId": " ", "sinkBatchId": "1"},
                f"sinkId is ' '; it must be {SINK_NAME_RULE}",
            ),
            Bad(
                {"sinkId": "of orders"},
                f"sinkId is 'of orders'; it must be {SINK_NAME_RULE}",
                streaming=True,
            ),
        ],
        elsewhere="test_sink.py::test_an_old_sink_id_under_a_new_checkpoint_ends_the_query",
    ),
    "sinkBatchId": Case(
        good=[Written({"sinkId": "hourly", "sinkBatchId": "4294967295"}, times=2)],
        bad=[
            Bad({"sinkBatchId": "1"}, _TOGETHER),
            Bad(
                {"sinkId": "hourly", "sinkBatchId": "-1"},
                "sinkBatchId is '-1'; it must be a whole number from 0 to 4294967295",
            ),
            Bad(
                {"sinkId": "hourly", "sinkBatchId": "4294967296"},
                "sinkBatchId is '4294967296'; it must be a whole number from 0 to 4294967295",
            ),
            Bad(
                {"sinkBatchId": "1"},
                "sinkBatchId is for df.write; a streaming query numbers its batches itself",
                streaming=True,
            ),
        ],
    ),
}

FOREIGN = [
    Bad({"topic": "copies"}, "option 'topic' is not known; name the stream to write to with 'stream'"),
    Bad(
        {"kafka.acks": "1"},
        f"option 'kafka.acks' is for Kafka; the options of a write are {', '.join(NAMES)}",
    ),
    Bad({"partitions": "1"}, f"option 'partitions' is not known; the options are {', '.join(NAMES)}"),
]
"""Options that are not in the table."""
