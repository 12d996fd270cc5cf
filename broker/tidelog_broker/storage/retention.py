"""What may be forgotten: the log start offset that a retention setting asks for.

Pure. Age and bytes count in whole segments, because that is what frees disk; messages
are exact, because the log start offset is logical. Nothing at or past the high
watermark goes, and never the active segment's bytes before it is rolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


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


def start_after_retention(
    segments: Sequence[SegmentFacts],
    bounds: RetentionBounds,
    *,
    start_offset: int,
    high_watermark: int,
    now_us: int,
) -> int:
    """The log start offset that `bounds` allow, never below the present one nor past the high watermark.

    `segments` are all of the log's, oldest first, the active one last.
    """
    start = start_offset
    if bounds.messages_max is not None:
        start = max(start, high_watermark - bounds.messages_max)
    kept = sum(segment.bytes for segment in segments)
    for segment in segments[:-1]:
        if segment.next_offset > high_watermark:
            break
        last = segment.last_append_us
        too_old = bounds.age_us is not None and last is not None and now_us - last > bounds.age_us
        too_much = bounds.bytes_max is not None and kept - segment.bytes >= bounds.bytes_max
        if not (too_old or too_much or segment.next_offset <= start):
            break
        start = max(start, segment.next_offset)
        kept -= segment.bytes
    return max(start_offset, min(start, high_watermark))
