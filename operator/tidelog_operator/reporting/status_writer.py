"""Writes statuses that have changed, and remembers what it wrote.

A written status comes back through a watch, which may take a while. Until then it counts as the status of the
object, so that nothing is written twice. If another status comes back, another client wrote it, and it is
replaced.
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
    """The status as the API server stored it: it removes fields that the definition does not have."""
    version: int
    """The resourceVersion of the object with this status."""


class StatusWriter:
    """Writes the statuses of one Cluster and its Streams."""

    def __init__(self, kube: Kube, reports: Reports, leads: Callable[[], bool]) -> None:
        """Nothing is written unless `leads()` is true."""
        self._kube = kube
        self._reports = reports
        self._leads = leads
        self._written: dict[str, _Written] = {}
        """The last written status, by the object's uid."""

    def __repr__(self) -> str:
        return f"<StatusWriter objects={len(self._written)}>"

    def forget(self) -> None:
        """Forgets all written statuses: another operator may have written others meanwhile."""
        self._written = {}

    def current_status(self, one: CustomResource) -> Manifest:
        """Returns the status of an object as it is, or as it will be when the last write has come back."""
        written = self._written.get(one.uid)
        if written is None:
            return one.status
        theirs = int(one.version) > written.version and one.status != written.taken
        return one.status if theirs else written.status

    async def write(self, statuses: Iterable[tuple[CustomResource, Status]]) -> bool:
        """Writes all statuses that have changed, and returns whether all objects have theirs. Other objects
        are forgotten."""
        pending = list(statuses)
        free = asyncio.Semaphore(AT_ONCE_MAX)

        async def write(one: CustomResource, status: Status) -> bool:
            async with free:
                return await self._write(one, status)

        async with asyncio.TaskGroup() as group:
            writes = [group.create_task(write(*each)) for each in pending]
        uids = [one.uid for one, _ in pending]
        self._written = {uid: self._written[uid] for uid in uids if uid in self._written}
        return all(one.result() for one in writes)

    async def _write(self, one: CustomResource, status: Status) -> bool:
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
        self._reports.status_written(one, before, status)
        return True
