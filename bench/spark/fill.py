"""Stores the rows for a contender, a process of its own: `python -m bench.spark.fill KIND …`.

Batches go to the partitions in turn. All rows are committed when the process ends.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import time_ns

import pyarrow as pa
import pyarrow.parquet as pq
import uvloop

import tidelog
from bench.spark.rows import batches

LANES = 8
"""Batches in flight."""

FILES = 10
"""Parquet files; a stream of files reads one or more of them in a micro-batch."""

FLUSH_SECONDS_MAX = 60


def into_tidelog(rows: Iterator[pa.RecordBatch], options: argparse.Namespace) -> None:
    async def fill() -> None:
        numbered = enumerate(rows)
        async with tidelog.connect(options.target) as client, client.producer(options.stream) as producer:

            async def lane() -> None:
                for number, batch in numbered:
                    await producer.send_batch(batch, partition=number % options.partitions)

            await asyncio.gather(*(lane() for _ in range(LANES)))

    uvloop.run(fill())


def into_kafka(rows: Iterator[pa.RecordBatch], options: argparse.Namespace) -> None:
    from confluent_kafka import Producer

    from bench.peers.kafka.client import PRODUCER

    producer = Producer({"bootstrap.servers": options.target, **PRODUCER})
    for number, batch in enumerate(rows):
        partition = number % options.partitions
        values = batch.column("value").to_pylist()
        keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * len(values)
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    producer.produce(options.stream, value, key, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(FLUSH_SECONDS_MAX)
    if left:
        raise SystemExit(f"{left} records were not acknowledged")


def into_parquet(rows: Iterator[pa.RecordBatch], options: argparse.Namespace) -> None:
    """Files without compression and dictionaries. Rows with keys also get a timestamp, as brokers give it."""
    folder = Path(options.target)
    folder.mkdir(parents=True)
    per_file = -(-options.rows // FILES)
    held: list[pa.RecordBatch] = []
    written = 0

    def write() -> None:
        nonlocal written, held
        if held:
            path = folder / f"part-{written:03}.parquet"
            pq.write_table(pa.Table.from_batches(held), path, compression="none", use_dictionary=False)
            written, held = written + 1, []

    for batch in rows:
        if "key" in batch.schema.names:
            stamps = pa.repeat(pa.scalar(time_ns() // 1000, pa.timestamp("us", "UTC")), batch.num_rows)
            batch = batch.append_column("timestamp", stamps)
        held.append(batch)
        if sum(one.num_rows for one in held) >= per_file:
            write()
    write()


TARGETS = {"tidelog": into_tidelog, "kafka": into_kafka, "parquet": into_parquet}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.fill", description="Stores rows.")
    parser.add_argument("kind", choices=sorted(TARGETS))
    parser.add_argument("--target", required=True, help="host:port of a broker, or a new folder")
    parser.add_argument("--stream", default="", help="the stream or the topic")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--subjects", action="store_true", help="rows with keys and subjects")
    options = parser.parse_args(arguments)
    rows = batches(options.size, options.rows, subjects=options.subjects)
    TARGETS[options.kind](rows, options)


if __name__ == "__main__":
    main()
