"""Counts the outcomes of appends in metrics, and logs a warning when the disk is full or fails.

The counts are added up once for each partition and round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from tidelog.errors import DiskFull, StorageFailed, TidelogError
from tidelog_broker.log_limit import LogLimit
from tidelog_broker.metrics import Metrics
from tidelog_broker.storage.log.write_batch import Appended
from tidelog_broker.writing.append_requests import Outcome
from tidelog_broker.writing.partition import Partition

log = structlog.get_logger(__name__)


class AppendCounter:
    """Counts the outcomes of appends in the metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._log_limit = LogLimit(asyncio.get_running_loop().time)

    def count(self, partition: Partition, outcomes: Sequence[Outcome]) -> None:
        """Counts written and refused appends; a duplicate counts as neither."""
        metrics = self._metrics
        appends = records = size = 0
        for append, outcome in outcomes:
            if isinstance(outcome, TidelogError):
                metrics.refused_appends.labels(outcome.code).inc()
                if isinstance(outcome, DiskFull | StorageFailed):
                    self._note(partition, outcome)
                continue
            if isinstance(outcome, Appended):
                new = 0 if outcome.duplicate else outcome.last_offset - outcome.base_offset + 1
            else:
                new = len(outcome.offsets) - len(outcome.duplicates)
            if new:
                appends += 1
                records += new
                size += append.bytes
        metrics.appends.inc(appends)
        metrics.appended_records.inc(records)
        metrics.appended_bytes.inc(size)

    def _note(self, partition: Partition, refusal: TidelogError) -> None:
        left_out = self._log_limit.left_out(refusal.code)
        if left_out is not None:
            log.warning(
                "appends are refused", stream=partition.name, partition=partition.partition,
                reason=str(refusal), left_out_before=left_out,
            )  # fmt: skip
