"""Planned failures, delays, and held calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.errors import InvalidRequest, TidelogError
from tidelog_proto import admin_pb2, log_pb2, metadata_pb2


def call_name(method: str) -> str:
    """The name of an rpc in planned failures: ``create_stream`` for ``CreateStream``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method).lower()


CALLS: Final = tuple(
    call_name(method.name)
    for module in (log_pb2, metadata_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
"""The names of all calls."""


class Fault(NamedTuple):
    """The failure of a call."""

    error: TidelogError
    landed: bool
    """The request is executed before it fails."""


@dataclass
class _Plan:
    call: str
    partition: int | None
    left: int
    fault: Fault | None
    delay_s: float


class Faults:
    """The planned failures in their order; each applies to the first calls that fit."""

    def __init__(self) -> None:
        self._plans: list[_Plan] = []
        self._held: dict[str, list[asyncio.Event]] = {}

    def plan(
        self, call: str, *, times: int, partition: int | None, fault: Fault | None = None, delay_s: float = 0
    ) -> None:
        _check(call)
        if times < 1:
            raise InvalidRequest(f"times is {times}; it must be at least 1")
        self._plans.append(_Plan(call, partition, times, fault, delay_s))

    def clear(self) -> None:
        """Removes the plans that have not applied yet."""
        self._plans.clear()

    @contextmanager
    def hold(self, call: str) -> Iterator[None]:
        _check(call)
        until = asyncio.Event()
        held = self._held.setdefault(call, [])
        held.append(until)
        try:
            yield
        finally:
            held.remove(until)
            until.set()

    async def met(self, call: str, partition: int | None = None) -> Fault | None:
        """Waits while `call` is held or delayed, then returns its failure; None: it succeeds."""
        while self._held.get(call):
            await self._held[call][-1].wait()
        for plan in self._plans:
            if plan.call == call and plan.partition in (None, partition):
                plan.left -= 1
                if not plan.left:
                    self._plans.remove(plan)
                if plan.delay_s:
                    await asyncio.sleep(plan.delay_s)
                return plan.fault
        return None


def _check(call: str) -> None:
    if call not in CALLS:
        raise InvalidRequest(f"there is no call {call!r}; the calls are {', '.join(CALLS)}")
