"""A log that is truncated and written again under a streaming query, on a cluster in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark.samples import send
from tidelog import blocking
from tidelog.errors import LogTruncated
from tidelog.testing import BlockingFakeCluster, blocking_cluster
from tidelog_spark import cluster
from tidelog_spark.options import parse_stream
from tidelog_spark.schema import row_schema
from tidelog_spark.servers import SERVERS
from tidelog_spark.stream import TidelogStreamReader


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingFakeCluster]:
    with blocking_cluster(3) as made:
        monkeypatch.setattr(blocking, "connect", lambda *_, **__: made.connect())
        yield made
        cluster.close_all()


def _query(fail_on_data_loss: str) -> TidelogStreamReader:
    given = {SERVERS: "memory", "subscribe": "orders", "startingOffsets": "earliest"}
    options = parse_stream({**given, "failOnDataLoss": fail_on_data_loss})
    return TidelogStreamReader(options, row_schema(headers=False))


def _read(query: TidelogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches = [batch for split in query.partitions(start, end) for batch in query.read(split)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("planned_before", [True, False])
def test_records_that_were_replaced_end_the_query_unless_loss_is_allowed(
    fake: BlockingFakeCluster, planned_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Either a range was planned before the truncation, or the query stands behind the divergence."""
    strict, lenient = _query("true"), _query("false")
    with fake.connect() as log:
        log.create_stream("orders")
        send(log, "orders", 50, batch_records=10)
        start = strict.initialOffset()
        end = strict.latestOffset(start, ReadAllAvailable())
        assert _read(strict, start, end) == list(range(50))

        fake.do(lambda brokers: brokers.truncate("orders", offset=20))
        fake.do(lambda brokers: brokers.move_leader("orders"))
        send(log, "orders", 60)
        if not planned_before:
            start, end = end, strict.latestOffset(end, ReadAllAvailable())

        with pytest.raises(LogTruncated, match="failOnDataLoss"):
            _read(strict, start, end)
        with caplog.at_level(logging.WARNING, "tidelog_spark"):
            found = _read(lenient, start, end)
    assert found == (list(range(50)) if planned_before else list(range(50, 80)))
    assert "cannot be read in full" in caplog.text
