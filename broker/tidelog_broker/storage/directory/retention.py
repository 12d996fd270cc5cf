"""What may be forgotten: the log start offset that a retention setting asks for.

Pure. Age and bytes count in whole segments, because that is what frees disk; messages
are exact, because the log start offset is logical. Nothing at or past the high
watermark goes, and never the active segment's bytes before it is rolled.

Age is counted from the last append time of a segment to the time that `retention_time`
allows. A segment that is dated ahead of the clock has no age; it is old when the broker
has had it, closed, for as long (`Waited`, R18).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_broker.storage.directory.retention_time import RetentionNow
from tidelog_broker.storage.guard.append_time import AHEAD_US_MAX


@dataclass(frozen=True, slots=True)
class RetentionBounds:
    """Per partition; None: no bound."""

    age_us: int | None = None
    """Since the last append to a segment. µs."""
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

    Saved, so that a restart does not begin to count again; the time of a stop does not count.
    """

    end_offset: int
    """Of the segments that were closed when the count began."""
    elapsed_us: int
    """Time that the broker ran since then. µs."""


def start_after_retention(
    segments: Sequence[SegmentFacts],
    bounds: RetentionBounds,
    *,
    start_offset: int,
    high_watermark: int,
    now: RetentionNow | None,
    waited: Waited | None = None,
) -> int:
    """The log start offset that `bounds` allow, never below the present one nor past the high watermark.

    `segments` are all of the log's, oldest first, the active one last. `now` is None while no
    clock may be believed: then nothing is too old.
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

    One count at a time: it begins with what is closed, and the next one when retention has passed its end.
    So a segment that is dated ahead is kept for at most twice the age.
    """
    ahead = [s.next_offset for s in segments[:-1] if s.next_offset <= high_watermark and _is_ahead(s, now)]
    if not ahead:
        return None
    if waited is None or waited.end_offset <= start_offset:
        return Waited(ahead[-1], 0)
    return Waited(waited.end_offset, waited.elapsed_us + elapsed_us)
