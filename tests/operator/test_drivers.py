"""What running drivers report to the operator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from tidelog_operator.drivers import Drivers
from tidelog_operator.ingestions import REPORT_BYTES_MAX, DriverPod, Report, read_report
from tidelog_spark.kubernetes.reports import ReportServer

PIECE_BYTES: Final = 4096


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


class Served:
    """A driver that sends its report in small pieces."""

    def __init__(self) -> None:
        self.report: dict[str, object] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.dumps(self.report).encode()
        answer = web.StreamResponse()
        answer.content_length = len(body)
        await answer.prepare(request)
        for at in range(0, len(body), PIECE_BYTES):
            await answer.write(body[at : at + PIECE_BYTES])
            await asyncio.sleep(0)
        return answer


@asynccontextmanager
async def serving(served: Served) -> AsyncIterator[Drivers]:
    app = web.Application()
    app.router.add_get("/report", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield Drivers(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def test_a_long_report_that_comes_in_pieces_is_read_whole() -> None:
    offsets = {"orders": {str(partition): 10**12 for partition in range(9000)}}
    served = Served()
    served.report = {"rows": 3, "offsets": offsets}
    assert len(json.dumps(served.report)) > 200_000

    async with serving(served) as drivers:
        await drivers.ask([pod()])

        assert drivers.report_of(pod()) == Report(rows=3, offsets=offsets)


async def test_a_report_above_the_limit_does_not_replace_the_last_one() -> None:
    served = Served()
    served.report = {"rows": 3}
    async with serving(served) as drivers:
        await drivers.ask([pod()])

        served.report = {"rows": 4, "message": "x" * REPORT_BYTES_MAX}
        await drivers.ask([pod()])

        assert drivers.report_of(pod()) == Report(rows=3)


def test_a_text_that_is_no_report_is_the_message() -> None:
    assert read_report("Traceback: no space\n") == Report(message="Traceback: no space")
    assert read_report('["rows"]').message == '["rows"]'


def test_a_report_says_since_when_there_is_no_executor() -> None:
    found = read_report('{"noExecutorSince": "2026-01-01T00:00:00.000Z", "lastBatchAt": null}')

    assert found == Report(no_executor_since="2026-01-01T00:00:00.000Z")


def test_a_report_with_strange_values_is_read_as_far_as_possible() -> None:
    found = read_report(
        '{"rows": -1, "lag": "much", "offsets": {"orders": 3}, "finishedAt": null, "lastBatchAt": "noon", '
        '"noExecutorSince": 3, "message": "x"}'
    )

    assert found == Report(message="x")
