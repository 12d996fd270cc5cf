"""One Cluster and its Streams: looked at, planned for, and told; again and again, by `loop`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from tidelog.errors import TidelogError
from tidelog_operator.apply import AT_ONCE_MAX, Applying
from tidelog_operator.brokers import Brokers
from tidelog_operator.kube import KUBE_FAILURES, Kube
from tidelog_operator.model import CLUSTER, STREAM, ObjectKey, StreamObject
from tidelog_operator.objects import Objects
from tidelog_operator.plan.brokers import BrokersView
from tidelog_operator.plan.streams import Decision, let_go, plan_streams
from tidelog_operator.status import Status, stream_status

log = structlog.get_logger(__name__)

PASSES_MAX: Final = 5
"""In a row, as long as something is done: what a change makes possible is done at once."""


class Reconciler:
    """See the module. Of one Cluster."""

    def __init__(self, key: ObjectKey, objects: Objects, kube: Kube) -> None:
        self.key = key
        self._objects = objects
        self._kube = kube
        self._brokers = Brokers()
        self._complete = False
        """Every object of the namespace is known. Watches bring them one by one, and a claim looks dead, or
        a Cluster gone, as long as its object has not come."""
        self._written: dict[ObjectKey, tuple[str, Status]] = {}
        """By object: its uid and the status that was written last, which may not have come back yet."""

    async def close(self) -> None:
        await self._brokers.close()

    async def once(self) -> None:
        """Raises what is not expected; what brokers or the API server refuse is in the status of objects."""
        if not self._complete:
            await self._list()
        errors: dict[ObjectKey, str] = {}
        for _ in range(PASSES_MAX):
            view, unreachable = await self._look()
            decisions = self._plan(view)
            applying = Applying(self._objects, self._kube, await self._client() if view is not None else None)
            await applying.decisions(decisions)
            errors = applying.errors
            if not applying.done:
                break
            self._brokers.changed()
        await self._tell(view, unreachable, decisions, errors)

    async def _list(self) -> None:
        """Raises `KUBE_FAILURES`; then nothing is done."""
        namespace = self.key.namespace
        for manifest in await self._kube.list(CLUSTER, namespace):
            self._objects.cluster(manifest, gone=False)
        for manifest in await self._kube.list(STREAM, namespace):
            self._objects.stream(manifest, gone=False)
        self._complete = True

    async def _look(self) -> tuple[BrokersView | None, str]:
        """The brokers; None, and why they cannot be asked."""
        cluster = self._objects.clusters.get(self.key)
        if cluster is None:
            return None, f"there is no Cluster {self.key.name!r} in this namespace"
        zones = self._objects.zones_of(self.key, cluster.spec["rackLabel"])
        try:
            return await self._brokers.look(self._ips(), zones), ""
        except TidelogError as error:
            return None, f"no broker of the Cluster {self.key.name!r} answers: {error}"

    def _ips(self) -> list[str]:
        return [pod.ip for pod in self._objects.pods_of(self.key) if pod.ip]

    async def _client(self) -> Any:
        return await self._brokers.client(self._ips())

    def _plan(self, view: BrokersView | None) -> Sequence[Decision]:
        streams = self._objects.streams_of(self.key.namespace)
        if view is not None:
            return plan_streams(streams, self.key.name, view)
        if self.key not in self._objects.clusters:
            return let_go(streams, self.key.name)
        return ()

    # --- telling objects of themselves

    async def _tell(
        self,
        view: BrokersView | None,
        unreachable: str,
        decisions: Sequence[Decision],
        errors: Mapping[ObjectKey, str],
    ) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        findings = {one.object.key: one.finding for one in decisions}
        free = asyncio.Semaphore(AT_ONCE_MAX)
        mine = [one for one in self._objects.streams_of(self.key.namespace) if one.cluster == self.key.name]

        async def tell(one: StreamObject) -> None:
            existing = None if view is None else view.streams.get(one.stream_name)
            if existing is not None and existing.owner != one.claim:
                existing = None
            before = self._status_of(one)
            status = stream_status(
                one,
                before,
                existing,
                finding=findings.get(one.key),
                error=errors.get(one.key, ""),
                unreachable=unreachable,
                now=now,
            )
            if status == before:
                return
            async with free:
                try:
                    await self._kube.write_status(STREAM, one.key, before, status)
                except KUBE_FAILURES as error:
                    log.warning("a status was not taken", stream=str(one.key), error=str(error))
                    return
            self._written[one.key] = (one.uid, status)

        async with asyncio.TaskGroup() as group:
            for one in mine:
                group.create_task(tell(one))
        self._written = {one.key: self._written[one.key] for one in mine if one.key in self._written}

    def _status_of(self, one: StreamObject) -> Mapping[str, Any]:
        """As it is or will be when what was written has come back."""
        uid, status = self._written.get(one.key, ("", {}))
        return status if uid == one.uid else one.status
