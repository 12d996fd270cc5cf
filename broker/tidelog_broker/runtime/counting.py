"""What became of appends and reads, as metrics. Added up once for each partition and round."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import TidelogError
from tidelog_broker.metrics import Metrics
from tidelog_broker.runtime.appends import Outcome
from tidelog_broker.storage.log import Appended


def count_appends(metrics: Metrics, outcomes: Sequence[Outcome]) -> None:
    """Counts what was written and what was refused; repeats are neither."""
    appends = records = size = 0
    for append, outcome in outcomes:
        if isinstance(outcome, TidelogError):
            metrics.refused_appends.labels(outcome.code).inc()
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
