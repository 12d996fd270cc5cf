"""Reports to the controller what the connections of this broker prove against other brokers (R14).

A report is sent at once and again with each heartbeat, as long as the evidence stands: a new controller
must learn of it, too. Neighbours: `peers.watch` finds the evidence, `session` sends the heartbeats, and
`core.metadata.controller.reports` says what the controller makes of a report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog

from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.controller.liveness import HEARTBEAT_MS
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.membership.wire import Answer, Report, Request
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.peers.watch import Evidence

log = structlog.get_logger(__name__)

AskController: TypeAlias = Callable[[Request, float], Awaitable[Answer]]
"""Sends the controller a request and waits for the answer, for at most so many seconds."""


class FailureReporter:
    """The evidence that this broker has against others. Belongs to one event loop."""

    def __init__(
        self, broker_id: int, incarnation: bytes, ask: AskController, image: Callable[[], ClusterImage]
    ) -> None:
        self._broker_id = broker_id
        self._incarnation = incarnation
        self._ask = ask
        self._image = image
        self._evidence: dict[tuple[int, ConnectionKind], tuple[bytes, Evidence]] = {}
        """By broker and kind of connection: the incarnation, and the evidence against it."""
        self._reports: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        return f"<FailureReporter evidence_against={sorted({broker for broker, _ in self._evidence})}>"

    def update(self, broker: int, kind: ConnectionKind, run: bytes, evidence: Evidence | None) -> None:
        """The evidence of one connection changed; it is reported at once. None: there is none any more."""
        if evidence is None:
            self._evidence.pop((broker, kind), None)
        else:
            self._evidence[broker, kind] = (run, evidence)
            self._report(broker, kind)

    def repeat(self) -> None:
        """Reports all evidence again."""
        for broker, kind in list(self._evidence):
            self._report(broker, kind)

    async def stop(self) -> None:
        for task in list(self._reports):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _report(self, broker: int, kind: ConnectionKind) -> None:
        run, evidence = self._evidence[broker, kind]
        image = self._image()
        known = image.brokers.get(broker)
        if known is None or known.incarnation != run or known.fenced:
            return
        if not shows_run(image, self._broker_id, self._incarnation):
            return
        report = Report(self._broker_id, self._incarnation, broker, run, evidence.value)
        task = asyncio.create_task(self._send(report))
        self._reports[task] = None
        task.add_done_callback(self._reports.pop)

    async def _send(self, report: Report) -> None:
        try:
            await self._ask(report, HEARTBEAT_MS / 1000)
        except TidelogError as error:
            log.debug(
                "a failure report did not reach the controller", broker=report.reported, error=str(error)
            )


def shows_run(image: ClusterImage, broker_id: int, incarnation: bytes) -> bool:
    """Whether the image shows that run of a broker as the registered one (R10)."""
    known = image.brokers.get(broker_id)
    return known is not None and known.incarnation == incarnation
