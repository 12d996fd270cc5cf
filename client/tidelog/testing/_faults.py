"""What is to go wrong next: planned failures, delays, and calls that are held."""

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
    """``CreateStream`` as planned failures name it: ``create_stream``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method).lower()


CALLS: Final = tuple(
    call_name(method.name)
    for module in (log_pb2, metadata_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
"""Every call there is, by name."""


class Fault(NamedTuple):
    """What a call meets."""

    error: TidelogError
    landed: bool
    """The request has its effect before it fails."""


@dataclass
class _Plan:
    call: str
    partition: int | None
    left: int
    fault: Fault | None
    delay_s: float


class Faults:
    """Plans are met in their order, each by the first calls that it fits."""

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
        """Forgets what was planned and not yet met."""
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
        """Waits as long as `call` is held or delayed; what goes wrong with it then."""
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
        raise InvalidRequest(f"there is no call {call!r}; calls are {', '.join(CALLS)}")
