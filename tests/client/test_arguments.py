"""Arguments of the wrong type: a typed error that names the argument, and nothing else is harmed."""

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidelog.testing
from tidelog import Client, ProducerOptions, ReaderOptions, StreamSettings, blocking, errors
from tidelog._arguments import as_headers
from tidelog.testing import FakeCluster

DATA = pa.record_batch({"value": pa.array([b"v"], pa.binary())})
NAIVE = dt.datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with tidelog.testing.cluster() as fake:
        yield fake


@pytest.fixture
async def log(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with cluster.connect() as client:
        await client.create_stream("s", partitions=2)
        yield client


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("timestamp", 1.5, "timestamp is 1.5 (float); it must be a datetime with a time zone"),
        ("timestamp", True, "timestamp is True (bool); it must be a datetime"),
        ("timestamp", dt.date(2026, 1, 1), "(date); it must be a datetime"),
        ("timestamp", NAIVE, "timestamp is 2026-01-01T00:00:00, which has no time zone"),
        ("partition", "0", "partition is '0' (str); it must be an int"),
        ("partition", 1.0, "partition is 1.0 (float)"),
        ("partition", True, "partition is True (bool)"),
        ("key", "k", "key is of type str; it must be bytes or None"),
        ("headers", "ab", "headers is 'ab' (str); it must be a mapping of names to bytes"),
        ("headers", 5, "headers is 5 (int)"),
        ("headers", [("a",)], "headers is [('a',)] (list)"),
        ("headers", {"a": "b"}, "a header's value is of type str"),
        ("headers", {1: b"b"}, "a header's name is of type int"),
        ("subject", b"s", "subject is of type bytes; it must be a str"),
    ],
)
async def test_a_record_with_a_wrong_argument_is_refused_and_the_next_one_sent(
    cluster: FakeCluster, log: Client, name: str, value: object, says: str
) -> None:
    wrong: Any = {name: value}
    async with log.producer("s") as producer:
        for _ in range(2):
            with pytest.raises(errors.InvalidRequest) as sent:
                await producer.send(b"v", **wrong)
            with pytest.raises(errors.InvalidRequest) as buffered:
                producer.send_nowait(b"v", **wrong)
        receipt = await producer.send(b"v", partition=0)

    assert says in str(sent.value)
    assert str(buffered.value) == str(sent.value)
    assert sent.value.details["field"] == name
    assert receipt.offset == 0


@pytest.mark.parametrize(
    ("value", "says"),
    [("1", "(str); it must be an int"), (1.5, "(float)"), (True, "(bool)"), (-1, "0–"), (1 << 63, "0–")],
)
async def test_a_conditional_send_with_a_wrong_offset_leaves_the_partition_usable(
    log: Client, value: Any, says: str
) -> None:
    async with log.producer("s") as producer:
        with pytest.raises(errors.InvalidRequest, match="expected_offset") as refused:
            await producer.send(b"v", partition=0, expected_offset=value)
        receipt = await producer.send(b"v", partition=0)

    assert says in str(refused.value)
    assert receipt.offset == 0


@pytest.mark.parametrize("data", [b"v", [b"v"], {"value": [b"v"]}, None, pa.array([b"v"])])
async def test_data_that_is_not_arrow_is_refused_with_the_right_types(log: Client, data: Any) -> None:
    async with log.producer("s") as producer:
        with pytest.raises(errors.InvalidRequest, match=r"pyarrow\.RecordBatch or pyarrow\.Table"):
            await producer.send_batch(data)
        with pytest.raises(errors.InvalidRequest, match=type(data).__name__):
            producer.send_batch_nowait(data)


@pytest.mark.parametrize("partition", ["0", 1.0, True])
async def test_arrow_data_for_a_wrong_partition_leaves_the_producer_usable(
    log: Client, partition: Any
) -> None:
    async with log.producer("s") as producer:
        with pytest.raises(errors.InvalidRequest, match="partition is"):
            await producer.send_batch(DATA, partition=partition)
        [receipt] = await producer.send_batch(DATA, partition=np.int64(1))  # type: ignore[arg-type]

    assert (receipt.partition, receipt.offset) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"start": {"0": 1}}, "a partition in start is '0' (str); it must be an int"),
        ({"end": {1.0: 1}}, "a partition in end is 1.0 (float)"),
        ({"partitions": "01"}, "partitions is '01' (str); it must be a sequence of ints"),
        ({"partitions": 0}, "partitions is 0 (int)"),
        ({"partitions": [0.0]}, "a number in partitions is 0.0 (float); it must be an int"),
        ({"partitions": [True]}, "a number in partitions is True (bool)"),
        ({"stream_id": "s"}, "stream_id is 's' (str); it must be the 16 bytes of a stream's id"),
        ({"stream_id": b"s"}, "16 bytes"),
        ({"follow": "no"}, "follow is 'no' (str); it must be True or False"),
        ({"on_truncated": 5}, "on_truncated is 5; it must be error, rewind, earliest or latest"),
        ({"options": 5}, "options is 5 (int); it must be ReaderOptions"),
    ],
)
async def test_a_reader_with_a_wrong_argument_is_refused_at_once(
    log: Client, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        log.reader("s", **arguments)

    assert says in str(refused.value)


@pytest.mark.parametrize("name", [5, b"s", None])
async def test_a_name_that_is_no_text_is_refused_everywhere(log: Client, name: Any) -> None:
    for use in (log.reader, log.producer):
        with pytest.raises(errors.InvalidRequest, match=r"stream is .*; it must be a str"):
            use(name)
    with pytest.raises(errors.InvalidRequest, match=r"name is .*; it must be a str"):
        await log.create_stream(name)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"subject": 5}, "subject is 5 (int); it must be a str"),
        ({"partitions": "3"}, "partitions is '3' (str); it must be an int"),
        ({"partitions": True}, "partitions is True (bool)"),
        ({"replication_factor": 1.5}, "replication_factor is 1.5 (float)"),
        ({"min_insync_replicas": "2", "replication_factor": 3}, "min_insync_replicas is '2' (str)"),
        ({"retention": "1d"}, "retention is '1d' (str); it must be a Retention"),
        ({"labels": 5}, "labels is of type int; it must be a mapping of str to str"),
        ({"labels": {"team": 5}}, "the label team is 5 (int); it must be a str"),
        ({"labels": {1: "x"}}, "a label's name is 1 (int)"),
        ({"owner": 5}, "owner is 5 (int)"),
        ({"replicas": [["0"]]}, "replicas is [['0']] (list); it must be a list of broker ids"),
        ({"validate_only": "yes"}, "validate_only is 'yes' (str); it must be True or False"),
        ({"settings": {}}, "settings is {} (dict); it must be StreamSettings"),
    ],
)
async def test_a_stream_with_a_wrong_argument_is_refused_by_the_client(
    log: Client, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        await log.create_stream("t", **arguments)

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("make", "arguments", "says"),
    [
        (ProducerOptions, {"linger_ms": "5"}, "linger_ms is '5' (str); it must be a number"),
        (ProducerOptions, {"linger_ms": float("nan")}, "linger_ms is nan; it must be at least 0"),
        (ProducerOptions, {"batch_bytes": 1e6}, "batch_bytes is 1000000.0 (float); it must be an int"),
        (ProducerOptions, {"idempotent": "yes"}, "idempotent is 'yes' (str)"),
        (ProducerOptions, {"acks": ["all"]}, "acks is ['all']; it must be all, leader or none"),
        (ReaderOptions, {"retry": 5}, "retry is 5 (int); it must be a RetryPolicy"),
        (ReaderOptions, {"silence_timeout_s": 0}, "silence_timeout_s is 0; it must be above 0"),
        (StreamSettings, {"segment_bytes": 0.5}, "segment_bytes is 0.5 (float); it must be an int"),
        (tidelog.Retention, {"age_ms": "1"}, "retention.age_ms is '1' (str); it must be an int"),
        (tidelog.ClientOptions, {"listener": 5}, "listener is 5 (int); it must be a str"),
    ],
)
def test_options_of_the_wrong_type_are_refused(make: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        make(**arguments)

    assert says in str(refused.value)


@pytest.mark.parametrize("given_headers", [{"h": "text"}, {1: b"v"}, [("\ud800", b"v")]])
def test_headers_of_other_types_are_refused(given_headers: Any) -> None:
    with pytest.raises(errors.InvalidRequest):
        as_headers(given_headers)


def test_the_blocking_producer_refuses_a_wrong_partition_at_once() -> None:
    with tidelog.testing.blocking_cluster() as fake, fake.connect() as log:
        assert isinstance(log, blocking.Client)
        log.create_stream("s")
        with log.producer("s") as producer, pytest.raises(errors.InvalidRequest, match="partition is '0'"):
            producer.send_nowait(b"v", partition="0")  # type: ignore[arg-type]
