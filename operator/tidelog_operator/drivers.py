"""Asks running drivers for their reports: rows, lag and offsets, which the statuses show.

A driver serves its report by HTTP (`tidelog_spark.kubernetes`), so it needs no right to write to the API
server. A driver that ends leaves its last report in the termination message of its pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import aiohttp

from tidelog_operator.ingestions import REPORT_BYTES_MAX, DriverPod, Report, read_report
from tidelog_operator.resources.runs import REPORT_PORT

ASK_SECONDS: Final = 10.0
"""How often a driver is asked."""
ANSWER_SECONDS_MAX: Final = 2.0
AT_ONCE_MAX: Final = 16

HTTP_OK: Final = 200


class Drivers:
    """The last reports of the drivers of one Cluster's Ingestions."""

    def __init__(self, port: int = REPORT_PORT) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._reports: dict[str, Report] = {}
        """By the pod's uid."""
        self._asked_at = -ASK_SECONDS

    def __repr__(self) -> str:
        return f"<Drivers reports={len(self._reports)}>"

    @property
    def due(self) -> bool:
        return self._loop.time() - self._asked_at >= ASK_SECONDS

    async def ask(self, pods: Iterable[DriverPod]) -> None:
        """Asks all running drivers. A driver that does not answer keeps its last report."""
        running = [one for one in pods if one.running and one.ip]
        self._asked_at = self._loop.time()
        self._reports = {one.uid: self._reports[one.uid] for one in running if one.uid in self._reports}
        if not running:
            return
        limit, free = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX), asyncio.Semaphore(AT_ONCE_MAX)
        async with aiohttp.ClientSession(timeout=limit) as session:

            async def ask(one: DriverPod) -> None:
                async with free:
                    report = await self._report(session, one.ip)
                if report is not None:
                    self._reports[one.uid] = report

            async with asyncio.TaskGroup() as group:
                for one in running:
                    group.create_task(ask(one))

    def report_of(self, pod: DriverPod) -> Report:
        return self._reports.get(pod.uid, Report())

    async def _report(self, session: aiohttp.ClientSession, ip: str) -> Report | None:
        host = f"[{ip}]" if ":" in ip else ip
        try:
            async with session.get(f"http://{host}:{self._port}/report") as answer:
                if answer.status != HTTP_OK:
                    return None
                body = await _whole(answer.content)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return None if body is None else read_report(body.decode("utf-8", "replace"))


async def _whole(content: aiohttp.StreamReader) -> bytes | None:
    """Returns the whole body; None: it is longer than `REPORT_BYTES_MAX`. A part of a report would be read
    as a text that is no report."""
    body = bytearray()
    # One read returns what has arrived, and a long report arrives in several pieces.
    async for piece in content.iter_any():
        body += piece
        if len(body) > REPORT_BYTES_MAX:
            return None
    return bytes(body)
