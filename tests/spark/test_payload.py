"""JSON values as columns, through brokers and Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from support.trio import Trio
from tidelog import blocking
from tidelog_spark.failures import sentence_of
from tidelog_spark.options import SERVERS
from tidelog_spark.payload.types import parse_schema

# The first test to ask for a session waits for its Java process as well.
pytestmark = pytest.mark.timeout(300)

Stream = Callable[..., str]
JSON = {"valueFormat": "json", "valueSchema": "id bigint, tags map<string,string>, at timestamp"}
VALUES = [b'{"id": 1, "tags": {"a": "b"}, "at": "2026-01-02T03:04:05Z"}', b"oops", None, b'{"id": 2}']


@pytest.fixture
def name(log: blocking.Client, stream: Stream) -> str:
    found = stream()
    with log.producer(found) as producer:
        for value in VALUES:
            producer.send(value)
    return found


def test_a_batch_read_has_typed_values_and_bad_records_as_asked(
    name: str, read: Callable[..., DataFrame]
) -> None:
    rows = read(name, badRecords="column", **JSON).orderBy("offset")
    found = rows.selectExpr("value.id", "value.tags['a']", "_bad_record.value", "value is null").collect()
    assert [tuple(row) for row in found] == [
        (1, "b", None, False),
        (None, None, b"oops", True),
        (None, None, None, True),
        (2, None, None, False),
    ]
    dropped = read(name, badRecords="drop", columns="offset", **JSON).collect()
    assert sorted(row.offset for row in dropped) == [0, 2, 3]
    with pytest.raises(PySparkException) as failure:
        read(name, schema="offset bigint", **JSON).collect()
    assert f"the record {name}/0 at offset 1 cannot be decoded: the value is not JSON" in sentence_of(
        failure.value
    )


def test_a_streaming_query_has_typed_values(
    name: str, spark: SparkSession, brokers: Trio, tmp_path: Path
) -> None:
    source = spark.readStream.format("tidelog").option(SERVERS, brokers.address).option("subscribe", name)
    rows = source.options(startingOffsets="earliest", badRecords="drop", **JSON).load()
    writer = (
        rows.select("offset", "value.*").writeStream.format("parquet").option("path", str(tmp_path / "out"))
    )
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).select("offset", "id").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [(0, 1), (2, None), (3, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "a INT, `b c` array<struct<x:map<string,decimal(9,2)>, y: date comment 'it'>>",
        "struct<a:tinyint,b:dec(5)>",
    ],
)
def test_a_schema_means_what_spark_reads_in_it(spark: SparkSession, text: str) -> None:
    found = StructType.fromDDL(text)
    assert parse_schema(text).simpleString() == found.simpleString()
    assert parse_schema(found.json()) == parse_schema(text)
