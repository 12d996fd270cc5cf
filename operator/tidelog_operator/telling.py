"""Telling objects of themselves: statuses are written when they are others than before, and remembered.

What was written comes back by a watch, which may take a while; until then it counts as what the object was
told, so that nothing is written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from tidelog_operator.conditions import Status
from tidelog_operator.kube import KUBE_FAILURES, Kube
from tidelog_operator.model import Manifest, Told
from tidelog_operator.reports import Reports

log = structlog.get_logger(__name__)

AT_ONCE_MAX: Final = 16
"""Statuses that are written at the same time."""


class Telling:
    """See the module."""

    def __init__(self, kube: Kube, reports: Reports) -> None:
        self._kube = kube
        self._reports = reports
        self._written: dict[str, Status] = {}
        """By the object's uid: what was written last."""

    def __repr__(self) -> str:
        return f"<Telling objects={len(self._written)}>"

    def forget(self) -> None:
        """Somebody else may have told them something meanwhile."""
        self._written = {}

    def known_to(self, one: Told) -> Manifest:
        """Its status, as it is or will be when what was written has come back."""
        return self._written.get(one.uid, one.status)

    async def tell(self, statuses: Iterable[tuple[Told, Status]]) -> bool:
        """Whether all of them know. Who is not among them is not remembered."""
        all_of_them = list(statuses)
        free = asyncio.Semaphore(AT_ONCE_MAX)

        async def tell(one: Told, status: Status) -> bool:
            async with free:
                return await self._tell(one, status)

        async with asyncio.TaskGroup() as group:
            told = [group.create_task(tell(*each)) for each in all_of_them]
        uids = [one.uid for one, _ in all_of_them]
        self._written = {uid: self._written[uid] for uid in uids if uid in self._written}
        return all(one.result() for one in told)

    async def _tell(self, one: Told, status: Status) -> bool:
        before = self.known_to(one)
        if status == before:
            return True
        try:
            await self._kube.write_status(one.kind, one.key, before, status)
        except KUBE_FAILURES as error:
            log.warning("a status was not taken", kind=one.kind, object=str(one.key), error=str(error))
            return False
        self._written[one.uid] = status
        self._reports.told(one, before, status)
        return True
