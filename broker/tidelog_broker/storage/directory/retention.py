"""Retention: the log start offset that a stream's retention settings allow.

Pure. Age and bytes count in whole segments, because only the removal of whole segments
frees disk. Messages count exactly, because the log start offset is logical. Records at or
past the high watermark are never removed. The bytes of the active segment are never
removed before it is rolled.

Age is counted from the last append time of a segment to the time that `retention_time`
allows. A segment that is dated ahead of the clock has no age. It is old when the broker
has had it, closed, for longer than the age bound (`Waited`, R18).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_broker.storage.directory.retention_time import RetentionNow
from tidelog_broker.storage.guard.append_time import AHEAD_US_MAX


@dataclass(frozen=True, slots=True)
class RetentionBounds:
    """The bounds of each partition; None: no bound."""

    age_us: int | None = None
    """Age since the last append to a segment, µs."""
    bytes_max: int | None = None
    messages_max: int | None = None

    @property
    def unlimited(self) -> bool:
        return self.age_us is None and self.bytes_max is None and self.messages_max is None


class SegmentFacts(NamedTuple):
    next_offset: int
    bytes: int
    last_append_us: int | None


class Waited(NamedTuple):
    """How long this broker has had closed segments that are dated ahead of the clock (R18).

    The count is saved, so a restart does not reset it. The time while the broker is stopped does not count.
    """

    end_offset: int
    """The end of the segments that were closed when the count began."""
    elapsed_us: int
    """The time that the broker has run since then, µs."""


def start_after_retention(
    segments: Sequence[SegmentFacts],
    bounds: RetentionBounds,
    *,
    start_offset: int,
    high_watermark: int,
    now: RetentionNow | None,
    waited: Waited | None = None,
) -> int:
    """The log start offset that `bounds` allow, never below the current start or past the high watermark.

    `segments` are all segments of the log, oldest first, the active segment last. `now` is None while
    no clock can be trusted: then no segment is too old.
    """
    start = start_offset
    if bounds.messages_max is not None:
        start = max(start, high_watermark - bounds.messages_max)
    kept = sum(segment.bytes for segment in segments)
    for segment in segments[:-1]:
        if segment.next_offset > high_watermark:
            break
        too_old = _is_old(segment, bounds.age_us, now, waited)
        too_much = bounds.bytes_max is not None and kept - segment.bytes >= bounds.bytes_max
        if not (too_old or too_much or segment.next_offset <= start):
            break
        start = max(start, segment.next_offset)
        kept -= segment.bytes
    return max(start_offset, min(start, high_watermark))


def _is_old(
    segment: SegmentFacts, age_us: int | None, now: RetentionNow | None, waited: Waited | None
) -> bool:
    if age_us is None or now is None or segment.last_append_us is None:
        return False
    if _is_ahead(segment, now):
        return waited is not None and segment.next_offset <= waited.end_offset and waited.elapsed_us > age_us
    return now.reached_us - segment.last_append_us > age_us


def _is_ahead(segment: SegmentFacts, now: RetentionNow) -> bool:
    return segment.last_append_us is not None and segment.last_append_us - now.clock_us > AHEAD_US_MAX


def waited_for(
    segments: Sequence[SegmentFacts],
    waited: Waited | None,
    *,
    start_offset: int,
    high_watermark: int,
    now: RetentionNow,
    elapsed_us: int,
) -> Waited | None:
    """The count after `elapsed_us` more; None: no closed segment is dated ahead of the clock.

    There is one count at a time. It covers the segments that are closed when it begins. The next count
    begins when retention has passed the end of these segments. So a segment that is dated ahead is kept
    for at most twice the age.
    """
    ahead = [s.next_offset for s in segments[:-1] if s.next_offset <= high_watermark and _is_ahead(s, now)]
    if not ahead:
        return None
    if waited is None or waited.end_offset <= start_offset:
        return Waited(ahead[-1], 0)
    return Waited(waited.end_offset, waited.elapsed_us + elapsed_us)
