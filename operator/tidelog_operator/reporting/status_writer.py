"""Telling objects of themselves: statuses are written when they are others than before, and remembered.

What was written comes back by a watch, which may take a while; until then it counts as what the object was
told, so that nothing is written twice. What comes back otherwise was said by somebody else, and is put right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tidelog_operator.kubernetes.api import KUBE_FAILURES, Kube, reason_of
from tidelog_operator.model import CustomResource, Manifest
from tidelog_operator.reporting.conditions import Status
from tidelog_operator.reporting.reports import Reports

AT_ONCE_MAX: Final = 16
"""Statuses that are written at the same time."""


class _Written(NamedTuple):
    status: Status
    taken: Manifest
    """As the API server took it: it lets go what the definition does not know."""
    version: int
    """Of the object, with it."""


class StatusWriter:
    """See the module."""

    def __init__(self, kube: Kube, reports: Reports, leads: Callable[[], bool]) -> None:
        """`leads`: only then is anything written."""
        self._kube = kube
        self._reports = reports
        self._leads = leads
        self._written: dict[str, _Written] = {}
        """By the object's uid: what was written last."""

    def __repr__(self) -> str:
        return f"<StatusWriter objects={len(self._written)}>"

    def forget(self) -> None:
        """Somebody else may have told them something meanwhile."""
        self._written = {}

    def current_status(self, one: CustomResource) -> Manifest:
        """Its status, as it is or will be when what was written has come back."""
        written = self._written.get(one.uid)
        if written is None:
            return one.status
        theirs = int(one.version) > written.version and one.status != written.taken
        return one.status if theirs else written.status

    async def tell(self, statuses: Iterable[tuple[CustomResource, Status]]) -> bool:
        """Whether all of them know. Who is not among them is not remembered."""
        all_of_them = list(statuses)
        free = asyncio.Semaphore(AT_ONCE_MAX)

        async def tell(one: CustomResource, status: Status) -> bool:
            async with free:
                return await self._notify(one, status)

        async with asyncio.TaskGroup() as group:
            told = [group.create_task(tell(*each)) for each in all_of_them]
        uids = [one.uid for one, _ in all_of_them]
        self._written = {uid: self._written[uid] for uid in uids if uid in self._written}
        return all(one.result() for one in told)

    async def _notify(self, one: CustomResource, status: Status) -> bool:
        before = self.current_status(one)
        if status == before:
            return True
        if not self._leads():
            return False
        try:
            found = await self._kube.write_status(one.kind, one.key, before, status)
        except KUBE_FAILURES as error:
            self._reports.status_failed(one, reason_of(error))
            return False
        if found is not None:
            version = int(found["metadata"]["resourceVersion"])
            self._written[one.uid] = _Written(status, found.get("status") or {}, version)
        self._reports.told(one, before, status)
        return True
