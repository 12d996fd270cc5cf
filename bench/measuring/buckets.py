"""Percentiles of times that a broker measured, from the buckets of its Prometheus histograms.

A histogram counts from the broker's start on; the difference of two looks counts what happened between them.
Pure: text and numbers in, numbers out. `bench.measuring.latency` is for latencies that a client measured and
kept one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Buckets = Mapping[float, float]
"""Upper bound → number of values at most that large; the last bound is infinity."""


def buckets_of(name: str, metrics: str) -> dict[float, float]:
    """The buckets of a histogram without labels in the text of /metrics, bounds ascending.

    Raises ValueError if the text does not have it.
    """
    found = re.findall(rf'^{re.escape(name)}_bucket{{le="([^"]+)"}} (\S+)$', metrics, re.MULTILINE)
    if not found:
        raise ValueError(f"there is no histogram {name} in the metrics")
    return dict(sorted((float(bound), float(count)) for bound, count in found))


def total_of(name: str, metrics: str) -> float:
    """The sum of a counter over all its labels; 0 if it has not counted yet."""
    found = re.findall(rf"^{re.escape(name)}_total(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(float(value) for value in found)


def difference(later: Buckets, earlier: Buckets) -> dict[float, float]:
    """The counts between two looks at the same histogram."""
    return {bound: count - earlier[bound] for bound, count in later.items()}


def percentile(buckets: Buckets, percent: float) -> float:
    """The value below which `percent` of all values lie, as if they were spread evenly in each bucket.

    The error is at most the width of the bucket. Beyond the last finite bound the result is that bound.
    Raises ValueError if nothing was counted.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        raise ValueError("nothing was counted")
    rank = total * percent / 100
    low, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= rank and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    raise ValueError("the counts of the buckets do not ascend")
