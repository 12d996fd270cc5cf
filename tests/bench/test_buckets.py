"""Percentiles from the buckets of a Prometheus histogram."""

import math
import random

import pytest
from bench.measuring.buckets import buckets_of, difference, percentile, total_of
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from tidelog_broker.metrics import FLUSH_BUCKETS


def observed(values: list[float]) -> dict[float, float]:
    registry = CollectorRegistry()
    histogram = Histogram("flush_seconds", "…", buckets=FLUSH_BUCKETS, registry=registry)
    for value in values:
        histogram.observe(value)
    return buckets_of("flush_seconds", generate_latest(registry).decode())


def test_buckets_are_read_from_the_text_that_a_broker_serves() -> None:
    found = observed([0.0001, 0.003, 0.003, 99.0])

    assert list(found) == [*FLUSH_BUCKETS, math.inf]
    assert (found[0.0001], found[0.0025], found[0.00315], found[5], found[math.inf]) == (1, 1, 3, 3, 4)


def test_a_missing_histogram_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="no histogram flush_seconds"):
        buckets_of("flush_seconds", "other 1.0\n")


def test_a_counter_is_the_sum_over_its_labels() -> None:
    registry = CollectorRegistry()
    counter = Counter("fetched_bytes", "…", ["source"], registry=registry)
    assert total_of("fetched_bytes", generate_latest(registry).decode()) == 0

    counter.labels("disk").inc(3e9)
    counter.labels("memory").inc(5)

    assert total_of("fetched_bytes", generate_latest(registry).decode()) == 3e9 + 5


@pytest.mark.parametrize("percent", [1, 50, 90, 99, 99.9])
def test_a_percentile_is_exact_to_the_width_of_a_bucket(percent: float) -> None:
    rng = random.Random(7)
    values = [min(rng.lognormvariate(-6.2, 0.6), 0.019) for _ in range(5000)]
    exact = sorted(values)[math.ceil(len(values) * percent / 100) - 1]

    found = percentile(observed(values), percent)

    assert found == pytest.approx(exact, rel=0.27)


def test_only_values_between_two_looks_count() -> None:
    before = [0.009] * 1000
    found = percentile(difference(observed(before + [0.001] * 10), observed(before)), 99)

    assert 0.0008 <= found <= 0.001


def test_values_that_are_spread_evenly_in_a_bucket_give_the_exact_percentile() -> None:
    assert percentile({1.0: 0, 2.0: 100, math.inf: 100}, 25) == 1.25


def test_beyond_the_last_bound_the_percentile_is_that_bound() -> None:
    assert percentile({1.0: 5, 2.0: 5, math.inf: 10}, 99) == 2.0


@pytest.mark.parametrize("buckets", [{}, {1.0: 0, math.inf: 0}])
def test_without_values_there_is_no_percentile(buckets: dict[float, float]) -> None:
    with pytest.raises(ValueError, match="nothing was counted"):
        percentile(buckets, 99)
