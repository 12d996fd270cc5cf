from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from spark.samples import odd_records, offsets, send
from tidelog import blocking
from tidelog_spark.failures import sentence_of

# The first test to ask for a session waits for its Java process as well.
pytestmark = pytest.mark.timeout(300)

Stream = Callable[..., str]
Read = Callable[..., DataFrame]


def test_every_record_arrives_as_the_client_reads_it(
    log: blocking.Client, stream: Stream, read: Read
) -> None:
    name = stream()
    with log.producer(name) as producer:
        for sent in odd_records():
            producer.send(**sent)
    rows = read(name, includeHeaders="true").orderBy("offset").collect()
    with log.reader(name, follow=False) as reader:
        records = list(reader)
    assert len(rows) == len(records) == len(odd_records())
    for row, record in zip(rows, records, strict=True):
        assert (row.stream, row.partition, row.offset) == (name, 0, record.offset)
        assert (row.key, row.value, row.subject) == (record.key, record.value, record.subject)
        assert tuple((header.key, header.value) for header in row.headers) == record.headers
        assert row.leader_epoch == record.leader_epoch
        assert int(row.timestamp.timestamp() * 1e6) // 1000 == record.timestamp_us // 1000


def test_streams_and_partitions_are_read_at_once_and_long_ones_by_several_tasks(
    log: blocking.Client, stream: Stream, read: Read
) -> None:
    one, two = stream(2), stream()
    send(log, one, 2000, partition=0)
    send(log, one, 700, partition=1)
    send(log, two, 1)
    rows = read(one, two, maxRecordsPerPartition="300")
    tasks = rows.select(functions.spark_partition_id()).distinct().count()
    assert tasks == 7 + 3 + 1
    assert offsets(rows, one, 0) == list(range(2000))
    assert offsets(rows, one, 1) == list(range(700))
    assert offsets(rows, two) == [0]
    values = {
        (row.offset, row.value) for row in rows.where("stream = '" + one + "' and partition = 1").collect()
    }
    assert values == {(number, f"value-{number}".encode()) for number in range(700)}


def test_the_columns_are_those_of_the_documentation(stream: Stream, read: Read) -> None:
    fields = [(field.name, field.dataType.simpleString(), field.nullable) for field in read(stream()).schema]
    assert fields == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("stream", "string", False),
        ("partition", "int", False),
        ("offset", "bigint", False),
        ("timestamp", "timestamp", False),
        ("subject", "string", True),
        ("leader_epoch", "bigint", False),
    ]


def test_a_schema_with_some_of_the_columns_reads_only_these(
    log: blocking.Client, stream: Stream, read: Read
) -> None:
    name = stream()
    with log.producer(name) as producer:
        producer.send(b"v", headers=[("h", b"1")])
        producer.send(b"w")
    rows = read(name, schema="offset bigint, headers array<struct<key: string, value: binary>>, value binary")
    found = [(row.offset, [tuple(header) for header in row.headers], row.value) for row in rows.collect()]
    assert sorted(found) == [(0, [("h", b"1")], b"v"), (1, [], b"w")]


def test_one_frame_gives_the_same_rows_filtered_unfiltered_and_joined(
    log: blocking.Client, stream: Stream, read: Read, spark: SparkSession
) -> None:
    """The trap of filter pushdown: plans of one frame share the Python source, so no plan may change it."""
    name = stream()
    with log.producer(name) as producer:
        for number in range(20):
            region = "eu" if number % 2 else "us"
            producer.send(b"%d" % number, key=b"k%d" % (number % 4), subject=f"orders.{region}.new")
    rows = read(name, subjectFilter="orders.eu.*", columns="offset,key")
    assert rows.columns == ["offset", "key"]
    few = rows.where("offset < 5")
    assert sorted(row.offset for row in few.collect()) == [1, 3]
    assert sorted(row.offset for row in rows.collect()) == list(range(1, 20, 2))
    assert few.union(rows).count() == 12
    assert few.alias("a").join(rows.where("key = 'k3'").alias("b"), "offset").count() == 1
    rows.createOrReplaceTempView("pruned")
    largest = spark.sql(
        "select * from pruned where offset = (select max(offset) from pruned where key = 'k1')"
    )
    assert [(row.offset, bytes(row.key)) for row in largest.collect()] == [(17, b"k1")]
    assert read(name, key="k2", columns="partition").count() == 5
    assert sorted(row.offset for row in read(name, keys='["k0", "k1"]').collect()) == sorted(
        [*range(0, 20, 4), *range(1, 20, 4)]
    )


def test_an_empty_stream_is_an_empty_frame(stream: Stream, read: Read) -> None:
    assert read(stream(3)).count() == 0


def test_a_frame_ends_where_the_stream_ended_at_its_first_action(
    log: blocking.Client, stream: Stream, read: Read
) -> None:
    name = stream()
    rows = read(name)
    send(log, name, 10)
    assert rows.count() == 10
    send(log, name, 5)
    assert rows.count() == 10
    assert read(name).count() == 15


def test_earliest_is_the_log_start_and_what_lies_below_is_lost_data(
    log: blocking.Client, stream: Stream, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    name = stream()
    send(log, name, 100)
    log.delete_records(name, 0, 40)
    assert offsets(read(name), name) == list(range(40, 100))
    below: dict[str, Any] = {"startingOffsets": json.dumps({name: {"0": 10}})}
    with pytest.raises(PySparkException) as failure:
        read(name, **below).count()
    assert sentence_of(failure.value) == (
        f"startingOffsets is 10 for {name}/0, but the log begins at 40 and its next offset is 100; "
        "set failOnDataLoss to false to continue without them"
    )
    assert offsets(read(name, failOnDataLoss="false", **below), name) == list(range(40, 100))


def test_a_schema_that_records_do_not_have_is_refused(stream: Stream, read: Read) -> None:
    for schema, sentence in (
        ("topic string", "no column 'topic'"),
        ("value string", "the column value is binary, not string"),
    ):
        with pytest.raises(PySparkException) as failure:
            read(stream(), schema=schema).count()
        assert sentence in sentence_of(failure.value)
