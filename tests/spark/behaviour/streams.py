"""The streams that the table of behaviour reads. Each has three replicas."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from spark.samples import BEGIN
from tidelog import blocking

BEGIN_MS = int(BEGIN.timestamp() * 1000)
MINUTE_MS = 60_000
LARGE_BYTES = 100_000


def make(log: blocking.Client) -> None:
    """Creates all of them and fills them."""
    for name, partitions in (("orders", 2), ("large", 1), ("values", 1), ("trimmed", 1), ("early", 2)):
        log.create_stream(name, partitions=partitions, durability="page-cache")
    with log.producer("orders") as producer:
        for partition, count in enumerate((10, 4)):
            producer.send_batch(_orders(count), partition=partition)
    with log.producer("early") as producer:
        producer.send_batch(_orders(3), partition=0)
    with log.producer("large") as producer:
        for number in range(8):
            producer.send(b"%0*d" % (LARGE_BYTES, number))
            producer.flush()
    with log.producer("values") as producer:
        for value in (b'{"id": 1, "at": 2000}', b"oops", None, b'{"id": 2}'):
            producer.send(value)
    with log.producer("trimmed") as producer:
        for number in range(5):
            producer.send(b"%d" % number)
    log.delete_records("trimmed", 0, 3)


def _orders(count: int) -> pa.RecordBatch:
    """Records a minute apart, with keys and subjects in turn, and a header."""
    return pa.record_batch(
        {
            "key": pa.array([b"k%d" % (number % 2) for number in range(count)], pa.binary()),
            "value": pa.array([b"%d" % number for number in range(count)], pa.binary()),
            "headers": [[{"key": "n", "value": b"%d" % number}] for number in range(count)],
            "subject": [f"orders.{'us' if number % 2 else 'eu'}.{number}" for number in range(count)],
            "timestamp": pa.array(
                [BEGIN + timedelta(minutes=number) for number in range(count)], pa.timestamp("us", tz="UTC")
            ),
        }
    )
