"""The driver of a copy from stream to stream, a process of its own.

Arguments: the master, the servers, the source, the target, the checkpoint, the settings of the session as
JSON, the records of a micro-batch, and `follow` to go on until the driver is killed or `end` to end at the
records that exist.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from tidelog_spark.servers import SERVERS
from tidelog_spark.session import local_session


def main(
    master: str,
    servers: str,
    source: str,
    target: str,
    checkpoint: str,
    settings: str,
    records: str,
    until: str,
) -> None:
    with local_session("copy", master=master, settings=json.loads(settings)) as spark:
        rows = (
            spark.readStream.format("tidelog")
            .option(SERVERS, servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", records)
            .load()
        )
        # Each partition of the source stays in order: all its rows go to one partition of the target.
        rows = rows.select(
            F.concat_ws(":", "partition", "offset").alias("key"),
            "value",
            (F.col("partition") % 3).alias("partition"),
        )
        writer = (
            rows.writeStream.format("tidelog")
            .option(SERVERS, servers)
            .option("stream", target)
            .option("checkpointLocation", checkpoint)
        )
        if until == "end":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime="0 seconds")
        writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
