"""Failures in the operator's log: each once, and again while it lasts."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from support.kube.situations import stream_object
from tidelog_operator import actions as do
from tidelog_operator.reporting.event_writer import EventWriter
from tidelog_operator.reporting.metrics import Metrics
from tidelog_operator.reporting.reports import FAILURES_KNOWN_MAX, LOGGED_EVERY_SECONDS, Reports

ORDERS = stream_object()
CHANGE = do.ElectPreferred(("orders",))


class NobodyWrites:
    """Events stay in the queue."""

    async def create(self, manifest: Any) -> Any:
        raise AssertionError

    async def patch(self, kind: str, key: Any, change: Any) -> None:
        raise AssertionError


class Reporter:
    """The log of one `Reports`, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reports = Reports(EventWriter(NobodyWrites(), "here"), Metrics(), lambda: self.now)

    def fails(self, why: str, after_seconds: float = 2.0) -> list[str]:
        """Reports a failure and returns the new log lines."""
        self.now += after_seconds
        with capture_logs() as lines:
            self.reports.failed(ORDERS, CHANGE, why)
        return [f"{one['object']}: {one['action']}: {one['reason']}" for one in lines]


def test_a_failure_that_repeats_is_logged_once_a_minute() -> None:
    reporter = Reporter()

    times = [reporter.now for _ in range(61) if reporter.fails("it is full")]

    assert len(times) == 1 + 120 // LOGGED_EVERY_SECONDS
    assert times[1] - times[0] == LOGGED_EVERY_SECONDS


def test_another_reason_is_logged_at_once() -> None:
    reporter = Reporter()
    reporter.fails("it is full")

    assert reporter.fails("it is away") == [
        "Stream shop/orders: elect the preferred leaders of 1 stream: it is away"
    ]
    assert reporter.fails("it is full") == []


def test_only_the_most_recent_failures_are_remembered() -> None:
    reporter = Reporter()
    for number in range(FAILURES_KNOWN_MAX + 1):
        assert reporter.fails(f"reason {number}", after_seconds=0)

    assert reporter.fails(f"reason {FAILURES_KNOWN_MAX}", after_seconds=0) == []
    assert reporter.fails("reason 0", after_seconds=0)
