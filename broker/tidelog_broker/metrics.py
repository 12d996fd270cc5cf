"""Prometheus metrics of the broker. Names end in their unit; counters in `_total`.

What can be read off the state is read when somebody scrapes (`_Collected`), so that a
thousand idle partitions cost nothing in between. Scrapes come from a thread of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog_broker.limits.loop_watch import Late

FLUSH_BUCKETS = (
    0.0001, 0.000125, 0.00016, 0.0002, 0.00025, 0.000315, 0.0004, 0.0005, 0.00063, 0.0008,
    0.001, 0.00125, 0.0016, 0.002, 0.0025, 0.00315, 0.004, 0.005, 0.0063, 0.008,
    0.01, 0.0125, 0.016, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5,
)  # fmt: skip
"""Seconds. Where disks live, from 0.1 to 20 ms, ten to a decade (the series R10): a percentile read off
them is then wrong by an eighth or so, where a bucket of 2 to 5 ms could hide a disk twice as slow."""

LATE_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
"""Seconds. A turn of the event loop is to be below 0.05."""

Sample = tuple[str, str, tuple[tuple[str, str], ...], float]
"""Name, help, labels, value."""


class Metrics:
    """The broker's counters; one registry for each broker, so that tests can run many."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self.registry = CollectorRegistry()
        self._loop_late_max = self._loop_ran_max = 0.0
        self.registry.register(_Collected(samples))
        self.calls = Counter(
            "tidelog_rpc_calls", "Calls by rpc and outcome.", ["rpc", "code"], registry=self.registry
        )
        self.appends = Counter(
            "tidelog_appends",
            "Appends written: batches of clients, and groups of single records.",
            registry=self.registry,
        )
        self.appended_records = Counter(
            "tidelog_appended_records", "Records appended by this leader.", registry=self.registry
        )
        self.appended_bytes = Counter(
            "tidelog_appended_bytes", "Bytes of batches appended by this leader.", registry=self.registry
        )
        self.refused_appends = Counter(
            "tidelog_refused_appends", "Appends refused, by error code.", ["code"], registry=self.registry
        )
        self.fetch_calls = Gauge("tidelog_fetch_calls", "Fetch calls that run now.", registry=self.registry)
        self.fetched_bytes = Counter(
            "tidelog_fetched_bytes", "Bytes of batches sent to readers, by where they came from.",
            ["source"], registry=self.registry,
        )  # fmt: skip
        self.flush_seconds = Histogram(
            "tidelog_flush_seconds",
            "Duration of a flush round.",
            buckets=FLUSH_BUCKETS,
            registry=self.registry,
        )
        self.loop_late_seconds = Histogram(
            "tidelog_event_loop_late_seconds",
            "How late the event loop came to a beat that is due 20 times a second.",
            buckets=LATE_BUCKETS,
            registry=self.registry,
        )
        self.loop_late_max_seconds = Gauge(
            "tidelog_event_loop_late_max_seconds",
            "The most that the event loop was late since the start.",
            registry=self.registry,
        )
        self.loop_ran_max_seconds = Gauge(
            "tidelog_event_loop_ran_max_seconds",
            "The longest time since the start that the event loop's own thread can have run while a beat "
            "was due.",
            registry=self.registry,
        )
        self.scrubbed_bytes = Counter(
            "tidelog_scrub_bytes", "Bytes of logs read to find damaged data.", registry=self.registry
        )
        self.healed_ranges = Counter(
            "tidelog_healed_ranges",
            "Damaged offset ranges replaced by the records of another replica.",
            registry=self.registry,
        )
        self.failed = Gauge(
            "tidelog_storage_failed", "1 after a write or flush failed.", registry=self.registry
        )
        self.nats_messages = Counter(
            "tidelog_nats_messages",
            "NATS messages by outcome.",
            ["outcome"],
            registry=self.registry,
        )

    def add(self, samples: Callable[[], Iterable[Sample]]) -> None:
        """Shows these, too."""
        self.registry.register(_Collected(samples))

    def loop_was_late(self, late: Late) -> None:
        """Counts a beat of the event loop."""
        self.loop_late_seconds.observe(late.seconds)
        if late.seconds > self._loop_late_max:
            self._loop_late_max = late.seconds
            self.loop_late_max_seconds.set(late.seconds)
        if late.ran_max > self._loop_ran_max:
            self._loop_ran_max = late.ran_max
            self.loop_ran_max_seconds.set(late.ran_max)


class _Collected(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, text, labels, value in self._samples():
            family = families.get(name)
            if family is None:
                family = families[name] = GaugeMetricFamily(name, text, labels=[key for key, _ in labels])
            family.add_metric([value for _, value in labels], value)
        yield from families.values()
