"""The streams that the table of behaviour reads. Each has three replicas."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from spark.samples import BEGIN
from tidelog import blocking

BEGIN_MS = int(BEGIN.timestamp() * 1000)
MINUTE_MS = 60_000
LARGE_BYTES = 100_000
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
DESCRIPTOR_FILE = Path(__file__).with_name("r.desc")
"""The `FileDescriptorSet` of `syntax = "proto3"; message R { int64 id = 1; }`."""
DESCRIPTORS = base64.b64encode(DESCRIPTOR_FILE.read_bytes()).decode()


def _arrow(number: int) -> bytes:
    """An Arrow stream of one row with the column `id`."""
    rows = pa.record_batch({"id": [number]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


VALUES: dict[str, list[bytes | None]] = {
    "values": [b'{"id": 1, "at": 2000}', b"oops", None, b'{"id": 2}'],
    "values-protobuf": [b"\x08\x01", b"oops", None, b"\x08\x02"],
    "values-avro": [b"\x02", b"oops", None, b"\x04"],
    "values-arrow": [_arrow(1), b"oops", None, _arrow(2)],
}
"""Streams with a good value, a bad value, a tombstone and a good value of a format."""


def make(log: blocking.Client) -> None:
    """Creates all of them and fills them."""
    partitions_of = {"orders": 2, "large": 1, "trimmed": 1, "early": 2} | dict.fromkeys(VALUES, 1)
    for name, partitions in partitions_of.items():
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
    for name, values in VALUES.items():
        with log.producer(name) as producer:
            for value in values:
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
