"""The only writer: does what a plan says, and says what went wrong.

The actions for one object are done in their order, and none after one that failed, but for those that a plan
sets apart; those for several objects at the same time. Whatever was done meanwhile by somebody else is an
error like any other: the next plan looks at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, assert_never

import structlog

import tidelog
from tidelog.errors import InvalidRequest, StreamNotFound, TidelogError, VersionConflict
from tidelog_operator import actions as do
from tidelog_operator.kubernetes.api import KUBE_FAILURES, Kube, Outdated, reason_of
from tidelog_operator.kubernetes.objects import Objects, key_of
from tidelog_operator.model import STREAM, ClusterObject, Manifest, ObjectKey, StreamClaim, StreamObject
from tidelog_operator.plan.streams import Decision
from tidelog_operator.reporting.events import attempt
from tidelog_operator.reporting.reports import Reports
from tidelog_operator.resources.comparing import difference
from tidelog_operator.resources.counts import counts_manager, counts_map
from tidelog_operator.resources.naming import ManifestId, manifest_id

log = structlog.get_logger(__name__)

AT_ONCE_MAX: Final = 16
"""Objects whose actions are done at the same time."""

SENTENCE_CHARACTERS_MAX: Final = 1000
"""Of what the API server says against something."""


class NotOwned(Exception):
    """Somebody else's object has the name of one that is to be made."""


class Applier:
    """One pass."""

    def __init__(
        self,
        objects: Objects,
        kube: Kube,
        client: tidelog.Client | None,
        reports: Reports,
        leads: Callable[[], bool],
    ) -> None:
        """`client` None: there are no brokers to be told of anything. Nothing is done without `leads`."""
        self._leads = leads
        self._objects = objects
        self._kube = kube
        self._client = client
        self._reports = reports
        self._free = asyncio.Semaphore(AT_ONCE_MAX)
        self.errors: dict[ObjectKey, str] = {}
        """What went wrong, by Stream."""
        self.cluster_error = ""
        """What went wrong with the Cluster; empty: nothing."""
        self.independent_error = ""
        """The first that went wrong of what holds nothing else up."""
        self.done = 0
        """Actions that changed something."""
        self.mutated: dict[ManifestId, str] = {}
        """What came out of the API server other than it was applied, and where it differs."""
        self.outdated = False
        """Something was not as it is known here."""
        self.conflicts: dict[tuple[str, ObjectKey], str] = {}
        """By kind and Cluster or Stream: that somebody was faster, as the brokers say it."""
        self.did: list[do.StreamAction | do.ClusterAction] = []

    async def cluster(
        self,
        one: ClusterObject | None,
        actions: Sequence[do.ClusterAction],
        independent: Sequence[do.ClusterAction] = (),
    ) -> None:
        """`one`: as it is now, if it is there. `apart`: after the others, whether those succeed or not, and
        each of them whatever becomes of the one before."""
        for action in actions:
            failed = await self._attempt(action, one)
            if failed is not None:
                self.cluster_error = failed
                break
        for action in independent:
            failed = await self._attempt(action, one)
            self.independent_error = self.independent_error or failed or ""

    async def decisions(self, decisions: Sequence[Decision]) -> None:
        async with asyncio.TaskGroup() as group:
            for one in decisions:
                if one.actions:
                    group.create_task(self._decision(one))

    async def retained(self, one: ClusterObject | None, actions: Sequence[do.RetainStream]) -> None:
        """When everything else is done: nobody waits for it, and what fails is left to the next pass."""
        for action in actions:
            if await self._attempt(action, one):
                return

    async def _decision(self, decision: Decision) -> None:
        async with self._free:
            for action in decision.actions:
                failed = await self._attempt(action, decision.object)
                if failed is not None:
                    if failed:
                        self.errors[decision.object.key] = failed
                    return

    async def _attempt(
        self, action: do.StreamAction | do.ClusterAction, one: StreamObject | ClusterObject | None
    ) -> str | None:
        """None: it is done; else why not. Empty: what it rests on is over, and its change is on its way."""
        if not self._leads():
            return ""
        try:
            changed = await self._execute(action, one)
        except Outdated:
            self.outdated = True
            return ""
        except VersionConflict as error:
            log.info("what it rests on is over; it is planned again", what=attempt(action), error=str(error))
            if one is not None:
                self.conflicts[one.kind, one.key] = f"could not {attempt(action)}: {error}"
            return ""
        except NotOwned as error:
            why = str(error)
        except TidelogError as error:
            why = str(error)
        except KUBE_FAILURES as error:
            why = f"the Kubernetes API does not take it: {reason_of(error)[:SENTENCE_CHARACTERS_MAX]}"
        else:
            self.did.append(action)
            if changed:
                self.done += 1
                log.info("done", what=attempt(action))
                self._reports.did(one, action)
            return None
        self._reports.failed(one, action, why)
        return why

    async def _execute(
        self, action: do.StreamAction | do.ClusterAction, one: StreamObject | ClusterObject | None
    ) -> bool:
        """Whether that changed anything, as far as it is told."""
        match action:
            case do.AddFinalizer(kind):
                assert isinstance(one, StreamObject)
                self._objects.finalized(one, await self._kube.add_finalizer(kind, one))
            case do.RemoveFinalizer(kind):
                assert isinstance(one, StreamObject)
                self._objects.finalized(one, await self._kube.remove_finalizer(kind, one))
            case do.CreateStream(_, name, settings, owner, replicas):
                await self._brokers.create_stream(name, settings=settings, owner=owner, replicas=replicas)
            case do.AlterStream(_, name, stream_id, version, settings, owner, new_replicas, former):
                if former is not None:
                    await self._check_deleted(former)
                await self._brokers.alter_stream(
                    name,
                    settings=settings,
                    owner=owner,
                    new_replicas=new_replicas,
                    expected_version=version,
                    stream_id=stream_id,
                )
            case do.RetainStream(claim, name, stream_id, version, owner):
                await self._check_deleted(claim)
                await self._brokers.alter_stream(
                    name, owner=owner, expected_version=version, stream_id=stream_id
                )
            case do.DeleteStream(_, name, stream_id, version):
                try:
                    await self._brokers.delete_stream(name, expected_version=version, stream_id=stream_id)
                except StreamNotFound:
                    # An operator before this one was killed when it had done it.
                    return False
            case do.Reassign(moves):
                await self._brokers.reassign(
                    {(one.name, one.partition): one.replicas for one in moves},
                    expected={(one.name, one.partition): one.expected for one in moves},
                )
            case do.CordonBroker(broker, version):
                await self._brokers.cordon(broker, expected_version=version)
            case do.UncordonBroker(broker, version):
                await self._brokers.uncordon(broker, expected_version=version)
            case do.UnregisterBroker(broker, version):
                return await self._unregister(broker, version)
            case do.ElectPreferred(names):
                await self._brokers.elect_preferred(names)
            case do.Throttle(speed):
                await self._brokers.throttle(speed)
            case do.CreateObject(manifest):
                await self._check_owned(manifest)
                self._objects.owned(await self._kube.create(manifest), gone=False)
            case do.ApplyObject(manifest, version):
                await self._check_owned(manifest)
                found = await self._kube.apply(manifest, version)
                self._objects.owned(found, gone=False)
                where = difference(found, manifest)
                if where is not None:
                    self.mutated[manifest_id(manifest)] = where
                    log.warning(
                        "something changes what is applied on its way into the API server; it is left so",
                        kind=manifest["kind"],
                        object=str(key_of(manifest)),
                        where=where,
                    )
            case do.DeleteObject(kind, key, uid):
                if await self._kube.delete(kind, key, uid):
                    self._objects.gone(kind, key, uid)
            case do.SetLowestCount(cluster, count):
                counts = counts_map(cluster, count)
                found = await self._kube.apply(counts, manager=counts_manager(cluster))
                self._objects.owned(found, gone=False)
            case _:
                assert_never(action)
        return True

    async def _unregister(self, broker: int, version: int) -> bool:
        try:
            await self._brokers.unregister_broker(broker, only_if_empty=True, expected_version=version)
        except InvalidRequest:
            # An operator before this one was killed when it had done it.
            found = await self._brokers.describe_cluster()
            if found.controller is None or any(one.broker_id == broker for one in found.brokers):
                raise
            return False
        return True

    async def _check_owned(self, manifest: Manifest) -> None:
        """What is not known here may be there all the same, and somebody else's. Raises `NotOurs`."""
        kind, key = manifest["kind"], key_of(manifest)
        if self._objects.is_owned(manifest):
            return
        there = await self._kube.find(kind, key)
        if there is None:
            return
        (owner,) = manifest["metadata"]["ownerReferences"]
        if any(one["uid"] == owner["uid"] for one in there["metadata"].get("ownerReferences", ())):
            wanted, labels = manifest["metadata"]["labels"], there["metadata"].get("labels") or {}
            lost = [f"{name}={value}" for name, value in wanted.items() if labels.get(name) != value]
            if not lost:
                # It has only just been made.
                raise Outdated(str(key))
            raise NotOwned(
                f"the {kind} {key.name!r} lost labels by which it is found; give it back {', '.join(lost)}"
            )
        raise NotOwned(
            f"there is a {kind} {key.name!r} that is not this Cluster's: it would be overwritten. Delete it, "
            "or give the Cluster another name"
        )

    async def _check_deleted(self, claim: StreamClaim) -> None:
        """Raises `Outdated` if the object is there.

        Who claims a stream has seen the object. So one whose claim the brokers have told of, and which the
        API server, asked after that, does not have, was there and is gone, and its uid never comes back:
        that holds for an operator, too, that has not seen every object yet, or is not the only one that
        acts. A claim that another object makes from here on has another version of the stream.
        """
        there = await self._kube.find(STREAM, claim.key)
        if there is not None and there["metadata"]["uid"] == claim.uid:
            raise Outdated(str(claim.key))

    @property
    def _brokers(self) -> tidelog.Client:
        assert self._client is not None, "what is told to brokers is planned only when there are any"
        return self._client
