"""Percentiles of latencies, from a high dynamic range histogram: microseconds to a minute, three digits."""

from __future__ import annotations

from collections.abc import Iterable

from hdrh.histogram import HdrHistogram

LOWEST_NS = 1_000
HIGHEST_NS = 60_000_000_000
DIGITS = 3


def summary_ms(latencies_ns: Iterable[int]) -> dict[str, float]:
    """p50, p99, p99.9 and the largest, in milliseconds, with the count."""
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for latency in latencies_ns:
        histogram.record_value(max(LOWEST_NS, min(latency, HIGHEST_NS)))
    if not histogram.total_count:
        raise ValueError("there are no latencies to summarize")

    def at(percentile: float) -> float:
        return float(histogram.get_value_at_percentile(percentile)) / 1e6

    return {
        "p50_ms": at(50),
        "p99_ms": at(99),
        "p99.9_ms": at(99.9),
        "max_ms": histogram.get_max_value() / 1e6,
        "count": float(histogram.total_count),
    }
