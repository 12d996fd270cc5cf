"""Typed values as columns, through brokers and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.json_format import ParseDict
from google.protobuf.timestamp_pb2 import Timestamp
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from support.trio import Trio
from tidelog import blocking
from tidelog_spark.failures import sentence_of
from tidelog_spark.payload.types import parse_schema
from tidelog_spark.servers import SERVERS

# The first test to ask for a session waits for its Java process as well.
pytestmark = pytest.mark.timeout(300)

AT = Timestamp.DESCRIPTOR
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


def test_avro_values_are_columns_of_their_types(
    log: blocking.Client, stream: Stream, read: Callable[..., DataFrame]
) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "state", "type": {"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        ],
    }
    name = stream()
    with log.producer(name) as producer:
        producer.send(b"\x02" + b"\x02\xd0\x0f" + b"\x02\x7d" + b"\x02\x02a\x02\x0e\x00\x00")
        producer.send(b"\x00" + b"\x00" + b"\x02\xff" + b"\x00")
        producer.send(b"\x04" + b"\x00" + b"\x02\xff" + b"\x00")
    rows = read(name, badRecords="column", valueFormat="avro", valueSchema=json.dumps(schema)).orderBy(
        "offset"
    )
    found = rows.selectExpr(
        "value.state", "unix_millis(value.at)", "value.price", "value.tags['a'][0]", "_bad_record.reason"
    ).collect()
    assert [tuple(row) for row in found] == [
        ("PAID", 1000, Decimal("1.25"), 7, None),
        ("NEW", None, Decimal("-0.01"), None, None),
        (None, None, None, None, "value.state is symbol 2 of an enum with 2 symbols"),
    ]


def test_protobuf_values_are_columns_of_their_types(
    log: blocking.Client, stream: Stream, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    file = {
        "name": "r.proto",
        "package": "shop",
        "syntax": "proto3",
        "dependency": ["google/protobuf/timestamp.proto"],
        "enum_type": [
            {"name": "State", "value": [{"name": "NEW", "number": 0}, {"name": "PAID", "number": 1}]}
        ],
        "message_type": [
            {
                "name": "Order",
                "field": [
                    {"name": "state", "number": 1, "type": "TYPE_ENUM", "type_name": ".shop.State"},
                    {"name": "at", "number": 2, "type": "TYPE_MESSAGE", "type_name": f".{AT.full_name}"},
                    {"name": "sizes", "number": 3, "type": "TYPE_UINT64", "label": "LABEL_REPEATED"},
                ],
            }
        ],
    }
    found = ParseDict({"file": [file]}, FileDescriptorSet())
    AT.file.CopyToProto(found.file.add())
    path = tmp_path / "shop.desc"
    path.write_bytes(found.SerializeToString())
    name = stream()
    with log.producer(name) as producer:
        producer.send(b"\x08\x01\x12\x02\x08\x02\x1a\x02\x05\x07")
        producer.send(b"")
        producer.send(b"\x08")
    rows = read(
        name,
        badRecords="column",
        valueFormat="protobuf",
        valueDescriptorFile=str(path),
        valueMessage="shop.Order",
    )
    columns = ("value.state", "unix_millis(value.at)", "value.sizes", "_bad_record.reason is null")
    assert [tuple(row) for row in rows.orderBy("offset").selectExpr(*columns).collect()] == [
        ("PAID", 2000, [5, 7], True),
        ("NEW", None, [], True),
        (None, None, None, False),
    ]


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
