"""A frame whose stream is deleted, or deleted and created again, after the frame was planned."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from spark.samples import send
from support.trio import Trio
from tidelog import blocking
from tidelog_spark.failures import sentence_of
from tidelog_spark.reader import Split
from tidelog_spark.servers import SERVERS
from tidelog_spark.source import TidelogDataSource

pytestmark = pytest.mark.timeout(300)

Frame = Callable[[], list[tuple[str, int]]]
"""Reads the streams and offsets of a frame. Later calls use the plan of the first call."""


@pytest.fixture(params=["calls", pytest.param("spark", marks=pytest.mark.long)])
def frame(request: pytest.FixtureRequest, spark: SparkSession, brokers: Trio) -> Callable[..., Frame]:
    def by_calls(**options: str) -> Frame:
        source = TidelogDataSource(CaseInsensitiveDict({SERVERS: brokers.address, **options}))
        reader = source.reader(source.schema())
        splits = [split for split in reader.partitions() if isinstance(split, Split)]

        def read() -> list[tuple[str, int]]:
            batches = [batch for split in splits for batch in reader.read(split)]
            table = pa.Table.from_batches(batches).to_pylist() if batches else []
            return sorted((row["stream"], row["offset"]) for row in table)

        return read

    def in_spark(**options: str) -> Frame:
        rows = spark.read.format("tidelog").option(SERVERS, brokers.address).options(**options).load()
        return lambda: sorted((row.stream, row.offset) for row in rows.select("stream", "offset").collect())

    return in_spark if request.param == "spark" else by_calls


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created-again"])
def test_a_frame_never_reads_another_stream_with_the_name(
    frame: Callable[..., Frame], log: blocking.Client, stream: Callable[..., str], again: bool
) -> None:
    kept, deleted = stream(), stream()
    for name in (kept, deleted):
        send(log, name, 3)
    strict = frame(subscribe=f"{kept},{deleted}")
    lenient = frame(subscribe=f"{kept},{deleted}", failOnDataLoss="false")
    everything = sorted((name, offset) for name in (kept, deleted) for offset in range(3))
    assert strict() == lenient() == everything

    log.delete_stream(deleted)
    if again:
        log.create_stream(deleted, durability="page-cache")
        send(log, deleted, 9)

    with pytest.raises(Exception) as failure:
        strict()
    found = sentence_of(failure.value)
    assert found.startswith(f"{deleted}/0 offsets 0–2 cannot be read in full: ")
    assert found.endswith(" was deleted; set failOnDataLoss to false to continue without them")
    assert lenient() == [(kept, offset) for offset in range(3)]
