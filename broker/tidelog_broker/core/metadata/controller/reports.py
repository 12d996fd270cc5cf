"""R14: brokers tell the controller that another one is gone, so that it need not wait for a session's end.

A report is about a pair of brokers. It counts for every partition that the reported one
leads and whose ISR the reporter is in. *Gone* (its machine refuses connections, or a broken
connection could not be opened again at once) is believed when a majority of the ISR other
than the leader says so. *Silent* may be the network between those two: it counts only
when the controller has missed two heartbeats as well.

After an election by report a partition backs off from reports, longer each time: a network that
breaks again and again must not move leaderships as often. A report that proved to be right is no such
thing: once the reported run is over, because its broker registered another one, there is nothing
to back off from.

This is the controller's memory, like `liveness`; `upkeep` makes the entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from tidelog_broker.core.metadata.controller.liveness import Sessions
from tidelog_broker.core.metadata.decisions.elections import PartitionKey
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage

REPORT_WINDOW_MS = 1000
"""Reports that are older do not count together."""

BACKOFF_MS = 1000
"""After an election by report a partition ignores reports for so long, doubling each time."""

BACKOFF_MS_MAX = 60_000
"""At most; and so long after a back-off without another election by report it is forgotten."""


class Evidence(Enum):
    REFUSED = "refused"
    """Its machine refuses connections."""
    RESET = "reset"
    """The connection broke, and so did a redial within 50 ms."""
    SILENT = "silent"
    """Nothing for `peer_silence_max`."""


class _Report(NamedTuple):
    reporter_run: bytes
    reported_run: bytes
    at_ms: int


class _Backoff(NamedTuple):
    until_ms: int
    length_ms: int
    reported: int
    reported_run: bytes
    """Whom the election deposed."""


class FailureReports:
    """What brokers said of each other lately. At most two reports for each pair of brokers."""

    def __init__(self, *, window_ms: int = REPORT_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._reports: dict[tuple[int, int, bool], _Report] = {}
        """By reported, reporter and whether it is gone rather than silent: the newest."""
        self._backoffs: dict[PartitionKey, _Backoff] = {}

    def __repr__(self) -> str:
        about = sorted({reported for reported, _, _ in self._reports})
        return f"<FailureReports about {about} backoffs={len(self._backoffs)}>"

    def report(
        self,
        image: ClusterImage,
        *,
        reporter: int,
        reporter_run: bytes,
        reported: int,
        reported_run: bytes,
        evidence: Evidence,
        now_ms: int,
    ) -> bool:
        """False: one of the two runs is not the registered one; the report says nothing about now."""
        if reporter == reported or not (
            _is_run(image, reporter, reporter_run) and _is_run(image, reported, reported_run)
        ):
            return False
        gone = evidence is not Evidence.SILENT
        self._reports[reported, reporter, gone] = _Report(reporter_run, reported_run, now_ms)
        return True

    def due(self, image: ClusterImage, sessions: Sessions, now_ms: int) -> list[PartitionKey]:
        """The partitions whose leader is to be replaced."""
        self._forget(image, now_ms)
        by_leader: dict[int, tuple[set[int], set[int]]] = {}
        for reported, reporter, gone in self._reports:
            says_gone, says_any = by_leader.setdefault(reported, (set(), set()))
            says_any.add(reporter)
            if gone:
                says_gone.add(reporter)
        if not by_leader:
            return []
        believed = {
            leader: says_any if sessions.is_silent(image.brokers[leader], now_ms) else says_gone
            for leader, (says_gone, says_any) in by_leader.items()
        }
        return [
            (stream.id, number)
            for stream in image.streams.values()
            for number, partition in enumerate(stream.partitions)
            if partition.leader in believed
            and _is_majority(partition, believed[partition.leader])
            and not self._backs_off(image, (stream.id, number), now_ms)
        ]

    def elected(self, image: ClusterImage, partitions: Iterable[PartitionKey], now_ms: int) -> None:
        """The leaders that `image` shows were replaced by report: the next ones are ignored for a while."""
        for key in partitions:
            partition = image.partition(*key)
            assert partition is not None, key
            assert partition.leader is not None, partition
            before = self._backoffs.get(key)
            again = before is not None and not _is_over(image, before)
            length = min(2 * before.length_ms, BACKOFF_MS_MAX) if before and again else BACKOFF_MS
            run = image.brokers[partition.leader].incarnation
            self._backoffs[key] = _Backoff(now_ms + length, length, partition.leader, run)

    def _backs_off(self, image: ClusterImage, key: PartitionKey, now_ms: int) -> bool:
        backoff = self._backoffs.get(key)
        return backoff is not None and now_ms < backoff.until_ms and not _is_over(image, backoff)

    def _forget(self, image: ClusterImage, now_ms: int) -> None:
        """What is old, and what is about runs that are over."""
        if self._reports:
            self._reports = {
                key: report
                for key, report in self._reports.items()
                if now_ms - report.at_ms <= self._window_ms
                and _is_run(image, key[0], report.reported_run)
                and _is_run(image, key[1], report.reporter_run)
            }
        if self._backoffs:
            self._backoffs = {
                key: backoff
                for key, backoff in self._backoffs.items()
                if now_ms < backoff.until_ms + BACKOFF_MS_MAX
            }


def _is_majority(partition: PartitionImage, reporters: set[int]) -> bool:
    others = [member for member in partition.isr if member != partition.leader]
    return 2 * sum(member in reporters for member in others) > len(others)


def _is_over(image: ClusterImage, backoff: _Backoff) -> bool:
    """Another run of the broker, or none, is registered: the reported one is gone for good. Fenced is not
    over: a network that breaks does that, too."""
    known = image.brokers.get(backoff.reported)
    return known is None or known.incarnation != backoff.reported_run


def _is_run(image: ClusterImage, broker: int, incarnation: bytes) -> bool:
    known = image.brokers.get(broker)
    return known is not None and known.incarnation == incarnation and not known.fenced
