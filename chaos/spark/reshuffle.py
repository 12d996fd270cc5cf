"""A micro-batch with a shuffle dies in the middle, and is repeated with other shuffle partitions.

``python -m chaos.spark.reshuffle --seeds 40`` runs one case for each seed, on a single broker and in one
session of Spark. A Python process of the batch kills itself when it has passed a number of rows by chance, or
the batch fails after its write and before Spark notes that it is done. Then the query starts again from its
checkpoint. The outcome of a case is ``exact`` or ``indeterminate``; anything else is a violation:
a query that goes on with a wrong batch, or another error.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from chaos.spark.checking import Row, compare
from tidelog import blocking
from tidelog.cli.local.local_cluster import Addresses, LocalCluster
from tidelog.cli.local.processes import Signals, free_ports
from tidelog.model.configuration import StreamSettings
from tidelog_spark.servers import SERVERS
from tidelog_spark.session import local_session

PARTITIONS: Final = 2
RECORDS: Final = 600
"""Of each partition of the source; a case has two micro-batches."""

VALUE_BYTES: Final = 200
SHUFFLES: Final = (1, 2, 3, 5, 8)
BATCH_BYTES_MAX: Final = 4_096
AFTER_THE_WRITE: Final = -1
"""As the row of the kill: the batch fails when all its rows are in the log."""

QUERY_SECONDS_MAX: Final = 120
SEEDS_MAX: Final = 10_000


@dataclass(frozen=True)
class Case:
    """What a seed decides."""

    number: int
    before: int
    """Shuffle partitions of the run that dies."""
    after: int
    """Shuffle partitions of the repetition."""
    explicit: bool
    """The number is given to `repartition`, and not by ``spark.sql.shuffle.partitions``, which Spark keeps in
    the checkpoint."""
    adaptive: bool
    row: int
    """A task dies at this row of its own, or `AFTER_THE_WRITE`."""

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(seed)
        before, after = chance.sample(SHUFFLES, 2)
        row = AFTER_THE_WRITE if chance.random() < 0.2 else chance.randrange(RECORDS // before)
        return cls(seed, before, after, chance.random() < 0.7, chance.random() < 0.5, row)


class Died(Exception):
    """The batch ends here, by intention."""


def play(case: Case, spark: SparkSession, log: blocking.Client, server: str, folder: Path) -> str:
    """The outcome: ``exact``, ``indeterminate``, or a sentence about a violation."""
    source, target = f"source-{case.number}", f"target-{case.number}"
    log.create_stream(source, partitions=PARTITIONS, durability="page-cache")
    small = StreamSettings(batch_bytes_max=BATCH_BYTES_MAX)
    log.create_stream(target, partitions=3, durability="page-cache", settings=small)
    expected: dict[tuple[str, int, int], bytes] = {}
    with log.producer(source) as producer:
        for partition in range(PARTITIONS):
            values = [(b"%d:%d:" % (partition, one)).ljust(VALUE_BYTES, b".") for one in range(RECORDS)]
            producer.send_batch(
                pa.record_batch({"value": pa.array(values, pa.binary())}), partition=partition
            )
            expected |= {(source, partition, offset): value for offset, value in enumerate(values)}
    spark.conf.set("spark.sql.adaptive.enabled", str(case.adaptive).lower())
    error = _run(case, case.before, case.row, spark, server, folder)
    if error is None:
        return "no kill: the query did not die"
    in_log = sum(end for _, end in log.offsets(target).values())
    error = _run(case, case.after, None, spark, server, folder)
    if error is not None:
        return "indeterminate" if "IndeterminateReplay" in error else f"another error: {error[-500:]}"
    findings = compare(expected, _rows(log, target, source))
    if findings.clean:
        return "exact"
    return f"silently wrong, with {in_log} rows in the log before: {findings.sentences()}"


def _rows(log: blocking.Client, target: str, source: str) -> Iterator[list[Row]]:
    for record in log.reader(target, follow=False):
        partition, _, offset = (record.key or b"").partition(b":")
        yield [((source, int(partition), int(offset)), record.value or b"")]


def _run(
    case: Case, shuffle: int, row: int | None, spark: SparkSession, server: str, folder: Path
) -> str | None:
    """Runs the query to its end; the text of the error that ended it. `row`: where a task dies."""
    spark.conf.set("spark.sql.shuffle.partitions", str(shuffle))
    options = {SERVERS: server, "stream": f"target-{case.number}", "sinkId": f"sink-{case.number}"}

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        passed = 0
        for batch in batches:
            if row is not None and 0 <= row < passed + batch.num_rows:
                if row > passed:
                    yield batch.slice(0, row - passed)
                # The rows before reach the log; other tasks go on for a moment, too.
                time.sleep(0.3)
                os._exit(9)
            passed += batch.num_rows
            yield batch

    def write(frame: DataFrame, batch: int) -> None:
        rows = frame.select(F.concat_ws(":", "partition", "offset").alias("key"), "value")
        shuffled = rows.repartition(shuffle, "key") if case.explicit else rows.repartition("key")
        shuffled = shuffled.sortWithinPartitions("key").mapInArrow(dying, shuffled.schema)
        shuffled.write.format("tidelog").options(**options, sinkBatchId=str(batch)).mode("append").save()
        if row == AFTER_THE_WRITE:
            raise Died

    rows = spark.readStream.format("tidelog").options(
        **{SERVERS: server, "subscribe": f"source-{case.number}"}
    )
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(RECORDS))
    query = (
        rows.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / f"checkpoint-{case.number}"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(QUERY_SECONDS_MAX):
            return f"the query did not end within {QUERY_SECONDS_MAX} s"
    except PySparkException as error:
        return str(error)
    finally:
        query.stop()
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 each case is exact or indeterminate; 1 a violation; 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m chaos.spark.reshuffle", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="how many cases. Default: 40")
    parser.add_argument("--first", type=int, default=0, help="the first seed. Default: 0")
    asked = parser.parse_args(arguments)
    if not 1 <= asked.seeds <= SEEDS_MAX:
        print(f"reshuffle: --seeds is {asked.seeds}; it must lie in 1–{SEEDS_MAX}.", file=sys.stderr)
        return 2
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    signals = Signals()
    with signals.caught(), tempfile.TemporaryDirectory(prefix="tidelog-reshuffle-") as name:
        folder = Path(name)
        cluster = LocalCluster(folder, Addresses.of("127.0.0.1", free_ports(4)), signals)
        settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": "20", "spark.task.maxFailures": "1"}
        try:
            cluster.start_nats()
            cluster.launch_brokers()
            cluster.wait_ready(0)
            server = cluster.addresses.server
            with (
                blocking.connect(server) as log,
                local_session("reshuffle", settings=settings, log_level="off") as spark,
            ):
                for seed in range(asked.first, asked.first + asked.seeds):
                    case = Case.of(seed)
                    outcome = play(case, spark, log, server, folder)
                    outcomes[outcome if outcome in ("exact", "indeterminate") else "violation"] += 1
                    print(f"{case}: {outcome}", flush=True)
        finally:
            cluster.stop()
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"outcomes": dict(sorted(outcomes.items())), "seconds": seconds}))
    return 1 if outcomes["violation"] else 0


if __name__ == "__main__":
    sys.exit(main())
