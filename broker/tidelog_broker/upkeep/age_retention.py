"""Computes the log start offsets that retention asks for, by a time that can be trusted (R18).

`storage.directory.retention` and `storage.directory.retention_time` decide. This module gives them the facts
about the logs and the cluster's clock, and saves the result for the next start. Neighbour: `maintenance`
sweeps and moves the log start offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from tidelog.errors import TidelogError
from tidelog.model import Retention
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.storage.directory.retention import (
    RetentionBounds,
    SegmentFacts,
    Waited,
    start_after_retention,
    waited_for,
)
from tidelog_broker.storage.directory.retention_time import RETENTION_SAVE_US, RetentionNow, RetentionTime
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.writing.partition import Partition

log = structlog.get_logger(__name__)


class _Seen(NamedTuple):
    partition: Partition
    segments: list[SegmentFacts]


class AgeRetention:
    """The retention by age of one broker; only one thread at a time may call `look`."""

    def __init__(self, store: LogStore, clock: ClusterClock) -> None:
        self._store = store
        self._clock = clock
        self._time = RetentionTime(store.checkpoints.retention_time_us())
        self._looked_us: int | None = None
        """When `look` last counted waiting segments, on the clock of elapsed time; None: never. µs."""
        self._waited: dict[tuple[bytes, int], Waited] = {}
        """How long closed segments dated ahead of the clock have waited, by partition; saved at intervals."""
        self.behind_us = 0
        """How far the time of retention is behind the clock, because the clock jumped. µs."""

    def __repr__(self) -> str:
        return f"<AgeRetention {self._time!r} dated_ahead={len(self._waited)}>"

    @property
    def dated_ahead(self) -> int:
        """Number of partitions with closed segments that are dated ahead of the clock."""
        return len(self._waited)

    def look(self, partitions: Sequence[Partition], clock_us: int | None) -> list[tuple[Partition, int]]:
        """The log start offset that retention asks for in each partition that can be read. Blocking.

        `partitions` are led here and have a retention bound. `clock_us` is `ClusterClock.retention_us`;
        None: no clock can be trusted, and no segment is too old.
        """
        seen = [one for one in map(self._seen, partitions) if one is not None]
        now = None
        if clock_us is not None:
            now = self._advance(seen, clock_us)
            self._wait(seen, now)
        starts: list[tuple[Partition, int]] = []
        for partition, segments in seen:
            start = start_after_retention(
                segments,
                bounds_of(partition.config.retention),
                start_offset=partition.log.start_offset,
                high_watermark=partition.high_watermark,
                now=now,
                waited=self._waited.get(partition.key),
            )
            starts.append((partition, start))
        return starts

    def _seen(self, partition: Partition) -> _Seen | None:
        """The facts about a partition's segments; None if they cannot be read, so that other logs go on."""
        segments = partition.log.segments
        try:
            if partition.config.retention.age_ms is not None:
                # The active segment is read only once: its time may be the first time of retention.
                for segment in segments if self._time.reached_us is None else segments[:-1]:
                    segment.load_times()
        except (OSError, TidelogError) as error:
            if not partition.removed:
                log.warning(
                    "maintenance could not read a log and skips it until its next pass",
                    stream=partition.name, partition=partition.partition, error=str(error),
                )  # fmt: skip
            return None
        return _Seen(partition, [SegmentFacts(s.next_offset, s.size, s.last_append_us) for s in segments])

    def _advance(self, seen: Sequence[_Seen], clock_us: int) -> RetentionNow:
        """Advances the time of retention to this sweep and returns it."""
        times = [one.last_append_us for _, segments in seen for one in segments]
        self._time.begin(min(clock_us, max((time for time in times if time is not None), default=0)))
        before = self._time.jumped
        now = self._time.now(clock_us, self._clock.elapsed())
        self.behind_us = now.behind_us
        if self._time.jumped and not before:
            log.warning(
                "the clock is more than a day ahead of the time that retention by age had reached: the "
                "broker was stopped for a long time, or the clock is wrong; "
                "retention goes on by a day an hour",
                ahead_s=now.behind_us / 1e6,
            )
        if self._time.unsaved:
            assert self._time.reached_us is not None
            try:
                self._store.checkpoints.save_retention_time(self._time.reached_us)
                self._time.saved()
            except OSError as error:
                # Goes on, because the disk may be full, and then retention must free space.
                log.warning(
                    "the time of retention could not be saved; the broker tries again", error=str(error)
                )
        return now

    def _wait(self, seen: Sequence[_Seen], now: RetentionNow) -> None:
        """Counts by elapsed time how long the broker has had segments dated ahead of the clock (R18)."""
        looked = self._clock.elapsed()
        passed = 0 if self._looked_us is None else looked - self._looked_us
        self._looked_us = looked
        changed: dict[tuple[bytes, int], Waited | None] = {}
        # A partition that is now led elsewhere keeps only its saved count, which is dropped when the log
        # is cut.
        before, self._waited = self._waited, {}
        for partition, segments in seen:
            key, saved = partition.key, self._store.checkpoints.waited(partition.key)
            waited = None
            if partition.config.retention.age_ms is not None:
                waited = waited_for(
                    segments,
                    before.get(key, saved),
                    start_offset=partition.log.start_offset,
                    high_watermark=min(partition.high_watermark, partition.log.durable_offset),
                    now=now,
                    elapsed_us=passed,
                )
            if waited is not None:
                if key not in before:
                    log.warning(
                        "closed segments are dated ahead of the clock; they are kept until they have existed "
                        "for the age of the retention",
                        stream=partition.name, partition=partition.partition, end_offset=waited.end_offset,
                    )  # fmt: skip
                self._waited[key] = waited
            if _worth_saving(waited, saved):
                changed[key] = waited
        if changed:
            try:
                self._store.saved.save_waited(changed)
            except OSError as error:
                log.warning(
                    "the age of segments dated ahead could not be saved; the broker tries again",
                    error=str(error),
                )


def bounds_of(retention: Retention) -> RetentionBounds:
    return RetentionBounds(
        age_us=None if retention.age_ms is None else retention.age_ms * 1000,
        bytes_max=retention.bytes,
        messages_max=retention.messages,
    )


def _worth_saving(waited: Waited | None, saved: Waited | None) -> bool:
    if waited is None or saved is None or waited.end_offset != saved.end_offset:
        return waited != saved
    return waited.elapsed_us - saved.elapsed_us >= RETENTION_SAVE_US
