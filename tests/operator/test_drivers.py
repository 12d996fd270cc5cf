"""What running drivers report to the operator."""

from __future__ import annotations

from pathlib import Path

from tidelog_operator.drivers import Drivers
from tidelog_operator.ingestions import DriverPod, Report, read_report
from tidelog_spark.kubernetes.reports import ReportServer


def pod(*, running: bool = True) -> DriverPod:
    return DriverPod(
        "orders-1-x", "uid", "orders-1", "127.0.0.1", "2026-01-01T00:00:00Z", running, None, Report()
    )


async def test_a_running_driver_is_asked_for_its_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(
        '{"rows": 3, "lag": 4, "offsets": {"orders": {"0": 5}}, "lastBatchAt": "2026-01-01T00:00:00Z"}'
    )

    with ReportServer(report, 0, "127.0.0.1") as server:
        drivers = Drivers(server.port)
        await drivers.ask([pod()])

    assert drivers.report_of(pod()) == Report(3, 4, {"orders": {"0": 5}}, "2026-01-01T00:00:00Z")
    await drivers.ask([pod()])
    assert drivers.report_of(pod()).rows == 3, "a driver that does not answer keeps its last report"
    await drivers.ask([pod(running=False)])
    assert drivers.report_of(pod()) == Report()


def test_a_text_that_is_no_report_is_the_message() -> None:
    assert read_report("Traceback: no space\n") == Report(message="Traceback: no space")
    assert read_report('["rows"]').message == '["rows"]'


def test_a_report_with_strange_values_is_read_as_far_as_possible() -> None:
    found = read_report(
        '{"rows": -1, "lag": "much", "offsets": {"orders": 3}, "finishedAt": null, "message": "x"}'
    )

    assert found == Report(message="x")
