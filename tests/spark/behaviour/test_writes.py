"""Each option of a write, with good values and their effect, and with bad values and their sentence.

The rows of a good write come from tasks, so only Spark can run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType

from spark.behaviour.case import Bad, Written
from spark.behaviour.writes import FOREIGN, WRITES
from spark.brokers import Brokers
from tidelog import blocking
from tidelog.errors import FencedProducer, UnknownProducer
from tidelog.records import BatchHeader
from tidelog_spark import sink
from tidelog_spark.failures import sentence_of
from tidelog_spark.servers import SERVERS
from tidelog_spark.source import TidelogDataSource

pytestmark = pytest.mark.timeout(300)

HEADER_BYTES = 80

Write = Callable[[Mapping[str, str], bool], None]


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{option}-{number}")
        for option, one in WRITES.items()
        for number, case in enumerate(one.good)
    ],
)
def test_a_good_value_of_a_write_has_its_effect(
    case: Written, spark: SparkSession, brokers: Brokers, log: blocking.Client, stream: Callable[..., str]
) -> None:
    name = stream()
    rows = spark.range(100).selectExpr("cast(id as string) as value").coalesce(1)
    for _ in range(case.times):
        options = brokers.filled({SERVERS: brokers.address, "stream": name, **case.options})
        rows.write.format("tidelog").options(**options).mode("append").save()

    found = [int(record.value or b"") for record in log.reader(name, follow=False)]
    assert found == list(range(case.records))
    assert _first_header(brokers, log, name).compression == case.compression


def _first_header(brokers: Brokers, log: blocking.Client, name: str) -> BatchHeader:
    """The header of the first batch in the file of the leader."""
    leader = log.describe_stream(name).partitions[0].leader
    assert leader is not None
    (file,) = brokers.brokers[leader].data.glob(f"streams/{name}~*/0/*.log")
    return BatchHeader.unpack(file.read_bytes()[:HEADER_BYTES])


@pytest.fixture(params=["calls", pytest.param("spark", marks=pytest.mark.long)])
def write(request: pytest.FixtureRequest, spark: SparkSession, brokers: Brokers, tmp_path: Path) -> Write:
    """Begins a write: a batch, or (True) a streaming query."""

    def by_calls(options: Mapping[str, str], streaming: bool) -> None:
        schema = spark.range(1).selectExpr("cast(id as string) as value").schema
        source = TidelogDataSource(CaseInsensitiveDict(brokers.filled({SERVERS: brokers.address, **options})))
        (source.streamWriter if streaming else source.writer)(schema, False)

    def in_spark(options: Mapping[str, str], streaming: bool) -> None:
        given = brokers.filled({SERVERS: brokers.address, **options})
        if not streaming:
            rows = spark.range(1).selectExpr("cast(id as string) as value")
            rows.write.format("tidelog").options(**given).mode("append").save()
            return
        rate = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
        writer = rate.writeStream.format("tidelog").options(**given)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    return in_spark if request.param == "spark" else by_calls


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{option}-{number}")
        for option, cases in (
            {option: one.bad for option, one in WRITES.items()} | {"other": FOREIGN}
        ).items()
        for number, case in enumerate(cases)
    ],
)
def test_a_bad_value_of_a_write_is_refused_with_its_sentence(
    case: Bad, write: Write, log: blocking.Client, stream: Callable[..., str]
) -> None:
    with pytest.raises(Exception) as failure:
        write({"stream": stream(), **case.options}, case.streaming)

    assert sentence_of(failure.value) == case.sentence


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_late_attempt_of_a_write_that_has_ended_writes_nothing(
    ends: str,
    brokers: Brokers,
    log: blocking.Client,
    stream: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, rows = stream(), pa.record_batch({"value": pa.array([b"a", b"b"])})
    schema = StructType([StructField("value", BinaryType())])
    source = TidelogDataSource(CaseInsensitiveDict({SERVERS: brokers.address, "stream": name}))
    writer = source.writer(schema, False)
    monkeypatch.setattr(sink, "_context", lambda: SimpleNamespace(partitionId=lambda: 0))
    done = writer.write(iter([rows]))

    if ends == "commit":
        writer.commit([done])
    else:
        writer.abort([None])

    with pytest.raises((UnknownProducer, FencedProducer)):
        writer.write(iter([rows]))
    assert [record.value for record in log.reader(name, follow=False)] == [b"a", b"b"]
