"""Statuses: written once, by the leader, and again where another client wrote something else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kubernetes.aio.client.exceptions import ApiException
from structlog.testing import capture_logs

from support.kube.situations import stream_object
from tidelog_operator.reporting.event_writer import EventWriter
from tidelog_operator.reporting.metrics import Metrics
from tidelog_operator.reporting.reports import Reports
from tidelog_operator.reporting.status_writer import StatusWriter

ONE = stream_object("orders")
READY: dict[str, Any] = {"phase": "Ready", "conditions": []}


class Refusing:
    """Rejects all statuses."""

    async def write_status(self, kind: str, key: Any, before: Any, status: dict[str, Any]) -> Any:
        error = ApiException(403, "Forbidden")
        error.body = json.dumps({"message": "you may not"})
        raise error


class Kube:
    """Accepts statuses, and keeps the `known` fields."""

    def __init__(self, *known: str) -> None:
        self.written: list[dict[str, Any]] = []
        self._known = known

    async def write_status(self, kind: str, key: Any, before: Any, status: dict[str, Any]) -> Any:
        self.written.append(status)
        taken = {name: value for name, value in status.items() if name in self._known}
        return {"metadata": {"resourceVersion": str(10 * len(self.written))}, "status": taken}


def writer(kube: Kube | Refusing, leads: bool = True) -> StatusWriter:
    reports = Reports(EventWriter(None, "here"), Metrics())  # type: ignore[arg-type]
    return StatusWriter(kube, reports, lambda: leads)  # type: ignore[arg-type]


async def test_a_written_status_is_not_written_again() -> None:
    kube = Kube("phase", "conditions")
    statuses = writer(kube)

    for one in (ONE, ONE, replace(ONE, version="10", status=READY)):
        assert await statuses.write([(one, READY)])

    assert kube.written == [READY]


async def test_a_field_missing_in_the_definition_is_not_written_again() -> None:
    kube = Kube("phase")
    statuses = writer(kube)
    await statuses.write([(ONE, READY)])

    await statuses.write([(replace(ONE, version="10", status={"phase": "Ready"}), READY)])
    await statuses.write([(replace(ONE, version="12", status={"phase": "Ready"}), READY)])

    assert kube.written == [READY]


async def test_a_later_status_of_another_client_is_replaced() -> None:
    """For example an operator that led before, and was delayed."""
    kube = Kube("phase", "conditions")
    statuses = writer(kube)
    await statuses.write([(ONE, READY)])
    theirs = {"phase": "Unreachable", "conditions": []}

    await statuses.write([(replace(ONE, version="7", status=theirs), READY)])
    assert kube.written == [READY]
    await statuses.write([(replace(ONE, version="11", status=theirs), READY)])

    assert kube.written == [READY, READY]


async def test_an_operator_that_does_not_lead_writes_nothing() -> None:
    kube = Kube("phase", "conditions")

    assert not await writer(kube, leads=False).write([(ONE, READY)])

    assert kube.written == []


async def test_a_rejected_status_is_written_again_and_logged_once() -> None:
    statuses = writer(Refusing())

    with capture_logs() as lines:
        assert not await statuses.write([(ONE, READY)])
        assert not await statuses.write([(ONE, READY)])

    assert [(one["object"], one["action"], one["reason"]) for one in lines] == [
        ("Stream shop/orders", "write its status", "you may not")
    ]
