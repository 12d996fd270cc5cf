"""The only writer: does what a plan says, and says what went wrong.

The actions for one object are done in their order, and none after one that failed; those for several objects
at the same time. Whatever was done meanwhile by somebody else is an error like any other: the next plan
looks at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, assert_never

import structlog
from kubernetes.aio.client.exceptions import ApiException

import tidelog
from tidelog.errors import StreamNotFound, TidelogError
from tidelog_operator import actions as do
from tidelog_operator.kube import KUBE_FAILURES, Kube, Outdated
from tidelog_operator.model import ObjectKey
from tidelog_operator.objects import Objects
from tidelog_operator.plan.streams import Decision

log = structlog.get_logger(__name__)

AT_ONCE_MAX: Final = 16
"""Objects whose actions are done at the same time."""


class Applying:
    """One pass."""

    def __init__(self, objects: Objects, kube: Kube, client: tidelog.Client | None) -> None:
        """`client` None: there are no brokers to be told of anything."""
        self._objects = objects
        self._kube = kube
        self._client = client
        self._free = asyncio.Semaphore(AT_ONCE_MAX)
        self.errors: dict[ObjectKey, str] = {}
        """What went wrong, by object."""
        self.done = 0
        """Actions that changed something."""

    async def decisions(self, decisions: Sequence[Decision]) -> None:
        async with asyncio.TaskGroup() as group:
            for one in decisions:
                if one.actions:
                    group.create_task(self._decision(one))

    async def _decision(self, decision: Decision) -> None:
        async with self._free:
            for action in decision.actions:
                try:
                    await self._do(decision, action)
                except Outdated:
                    # Its change is on its way here.
                    return
                except TidelogError as error:
                    self.errors[decision.object.key] = str(error)
                    return
                except KUBE_FAILURES as error:
                    log.warning(
                        "the API server did not take a write", action=repr(action)[:200], error=str(error)
                    )
                    self.errors[decision.object.key] = f"the Kubernetes API does not take it: {_said(error)}"
                    return
                self.done += 1
                log.info("done", action=repr(action)[:300])

    async def _do(self, decision: Decision, action: do.StreamAction) -> None:
        match action:
            case do.AddFinalizer(kind):
                version = await self._kube.add_finalizer(kind, decision.object)
                self._objects.finalized(decision.object, version)
            case do.RemoveFinalizer(kind):
                await self._kube.remove_finalizer(kind, decision.object)
            case do.CreateStream(_, name, settings, owner, replicas):
                await self._brokers.create_stream(name, settings=settings, owner=owner, replicas=replicas)
            case do.AlterStream(_, name, stream_id, version, settings, owner, new_replicas):
                await self._brokers.alter_stream(
                    name,
                    settings=settings,
                    owner=owner,
                    new_replicas=new_replicas,
                    expected_version=version,
                    stream_id=stream_id,
                )
            case do.DeleteStream(_, name, stream_id, version):
                try:
                    await self._brokers.delete_stream(name, expected_version=version, stream_id=stream_id)
                except StreamNotFound:
                    # An operator before this one was killed when it had done it.
                    return
            case do.Reassign(moves):
                await self._brokers.reassign({(one.name, one.partition): one.replicas for one in moves})
            case _:
                assert_never(action)

    @property
    def _brokers(self) -> tidelog.Client:
        assert self._client is not None, "what is told to brokers is planned only when there are any"
        return self._client


def _said(error: BaseException) -> str:
    return (
        f"{error.status} {error.reason}"
        if isinstance(error, ApiException)
        else str(error) or type(error).__name__
    )
