"""R14: brokers report to the controller that another broker failed, so that it does not wait for a session's
end.

A report is about a pair of brokers. It counts for every partition that the reported broker
leads and whose ISR includes the reporter. *Gone* (its machine refuses connections, or a broken
connection could not be opened again at once) counts when a majority of the ISR without the leader
reports it. *Silent* may be a fault of the network between the two brokers: it counts only
when the controller has missed two heartbeats as well.

After an election by report a partition ignores reports for a back-off time, longer each time: a network that
breaks again and again must not move leaderships as often. A correct report needs no
back-off: it ends once the reported run is over, because its broker registered another run.

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
"""Reports older than this do not count."""

BACKOFF_MS = 1000
"""After an election by report a partition ignores reports for this time, which doubles each time."""

BACKOFF_MS_MAX = 60_000
"""The longest back-off. A back-off is forgotten this long after its end, without another election by
report."""


class Evidence(Enum):
    """What the reporter saw of the reported broker."""

    REFUSED = "refused"
    """Its machine refuses connections."""
    RESET = "reset"
    """The connection broke, and so did a redial within 50 ms."""
    SILENT = "silent"
    """No message arrived for `peer_silence_max`."""


class _Report(NamedTuple):
    reporter_run: bytes
    reported_run: bytes
    at_ms: int


class _Backoff(NamedTuple):
    until_ms: int
    length_ms: int
    reported: int
    reported_run: bytes
    """The run of the deposed leader."""


class FailureReports:
    """The recent reports of brokers about each other. At most two for each pair of brokers."""

    def __init__(self) -> None:
        self._reports: dict[tuple[int, int, bool], _Report] = {}
        """The newest report by reported broker, reporter, and whether it says gone (True) or silent."""
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
        """Records a report. False: one of the two runs is not the registered run, so the report is too
        old."""
        if reporter == reported or not (
            _is_run(image, reporter, reporter_run) and _is_run(image, reported, reported_run)
        ):
            return False
        gone = evidence is not Evidence.SILENT
        self._reports[reported, reporter, gone] = _Report(reporter_run, reported_run, now_ms)
        return True

    def due(self, image: ClusterImage, sessions: Sessions, now_ms: int) -> list[PartitionKey]:
        """The partitions whose leader must be replaced."""
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
        """The leaders in `image` are replaced by report: the next reports are ignored for a back-off time."""
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
        """Drops old reports, and reports about runs that are over."""
        if self._reports:
            self._reports = {
                key: report
                for key, report in self._reports.items()
                if now_ms - report.at_ms <= REPORT_WINDOW_MS
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
    """Another run of the broker is registered, or the broker is not: the reported run is over. A fenced run
    is not over: a broken network fences as well."""
    known = image.brokers.get(backoff.reported)
    return known is None or known.incarnation != backoff.reported_run


def _is_run(image: ClusterImage, broker: int, incarnation: bytes) -> bool:
    known = image.brokers.get(broker)
    return known is not None and known.incarnation == incarnation and not known.fenced
