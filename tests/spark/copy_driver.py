"""The driver of `test_copy_under_kills`, a process of its own: copies a stream with `writeStream`.

Arguments: servers, source, target, checkpoint, the records of a micro-batch, and `follow` to go on until
it is killed, or `end` to end at the records that exist.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F  # noqa: N812

from tidelog_spark.options import SERVERS
from tidelog_spark.session import local_session


def main(servers: str, source: str, target: str, checkpoint: str, records: str, until: str) -> None:
    with local_session("copy", master="local[2,4]") as spark:
        rows = (
            spark.readStream.format("tidelog")
            .option(SERVERS, servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", records)
            .load()
        )
        origin = F.concat_ws(":", "partition", "offset")
        writer = (
            rows.select(origin.alias("key"), "value")
            .writeStream.format("tidelog")
            .option(SERVERS, servers)
            .option("stream", target)
            .option("checkpointLocation", checkpoint)
        )
        writer = (
            writer.trigger(availableNow=True)
            if until == "end"
            else writer.trigger(processingTime="0 seconds")
        )
        writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
