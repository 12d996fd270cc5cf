"""Objects and brokers for the tests of plans: created in one line, and changed by the actions of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from tidelog.model import (
    BrokerDescription,
    BrokerStanding,
    ClusterDescription,
    PartitionDescription,
    PartitionVersion,
    StreamConfig,
    StreamDescription,
)
from tidelog_operator import actions as do
from tidelog_operator.actions import AlterStream, MovePartition
from tidelog_operator.model import FINALIZER, ObjectKey, StreamObject, read_stream
from tidelog_operator.plan import placement as plan
from tidelog_operator.plan.placement import BrokersView
from tidelog_operator.plan.streams import plan_retained, plan_streams

NAMESPACE = "shop"
CLUSTER = "main"

STREAM_DEFAULTS: dict[str, Any] = {
    "partitions": 1,
    "minInsyncReplicas": 2,
    "durability": "fsync",
    "retention": {"age": "7d"},
    "segments": {"bytes": "1Gi", "age": "7d"},
    "limits": {"batchBytes": "1Mi", "timestampAhead": "1h"},
    "dedupe": {"window": "2m", "count": 100_000},
    "nats": {"ack": "Always"},
    "deletionPolicy": "Retain",
}
"""The defaults that the API server sets; `operator/admission` compares them with a real one."""


CLUSTER_DEFAULTS: dict[str, Any] = {
    "brokers": 3,
    "voters": 3,
    "rackLabel": "topology.kubernetes.io/zone",
    "replaceAfter": "5m",
    "moves": {"atOnce": 20, "balance": True},
}
"""The defaults that the API server sets; `operator/admission` compares them with a real one."""

CLUSTER_UID = "8d1b0f2e-3f4a-4a65-9a3e-0c6f6b3f2a11"


def cluster_manifest(*, deleting: bool = False, status: Any = None, **spec: Any) -> dict[str, Any]:
    """Returns a Cluster as the API server returns it, with defaults."""
    meta: dict[str, Any] = {
        "namespace": NAMESPACE,
        "name": CLUSTER,
        "uid": CLUSTER_UID,
        "generation": 1,
        "resourceVersion": "1",
    }
    if deleting:
        meta["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    image = {"image": "tidelog:1", "storage": {"size": "10Gi"}}
    return {"metadata": meta, "spec": {**image, **CLUSTER_DEFAULTS, **spec}, "status": status or {}}


def stream_object(
    name: str = "orders",
    *,
    uid: str = "",
    created: int = 0,
    deleting: bool = False,
    finalized: bool | None = None,
    cluster: str = CLUSTER,
    **spec: Any,
) -> StreamObject:
    """Returns a Stream as the API server returns it, with defaults. `created`: seconds, smaller for older
    objects. `finalized`: by this operator or an earlier one; None: as its policy requires."""
    spec = {"cluster": cluster, **STREAM_DEFAULTS, **spec}
    if finalized is None:
        finalized = spec["deletionPolicy"] == "Delete"
    meta: dict[str, Any] = {
        "namespace": NAMESPACE,
        "name": name,
        "uid": uid or f"uid-of-{name}",
        "generation": 1,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        "finalizers": [FINALIZER] if finalized else [],
        "resourceVersion": "1",
    }
    if deleting:
        meta["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    return read_stream({"metadata": meta, "spec": spec})


def stream(
    name: str = "orders", replicas: Sequence[tuple[int, ...]] = ((0, 1, 2),), owner: str = "", **config: Any
) -> StreamDescription:
    """Returns the stream as the brokers have it, with all replicas in sync."""
    return StreamDescription(
        name=name,
        stream_id=name.encode().ljust(16, b"-")[:16],
        config=StreamConfig(
            **{
                "partitions": len(replicas),
                "replication_factor": min(map(len, replicas)),
                "min_insync_replicas": 2,
                **config,
            }
        ),
        version=7,
        created_us=0,
        partitions=tuple(
            PartitionDescription(number, members[0], 1, 0, members, members)
            for number, members in enumerate(replicas)
        ),
        owner=owner,
    )


class Brokers:
    """The simulated brokers: their state, and the effect of actions. `version_of` counts as that of real
    brokers."""

    def __init__(
        self,
        count: int = 3,
        *streams: StreamDescription,
        states: Mapping[int, str] | None = None,
        zones: Mapping[int, str] | None = None,
        sizes: Mapping[tuple[str, int], int] | None = None,
        instant: bool = True,
    ) -> None:
        """`instant`: moves finish at once; else when `arrive` is called."""
        self.states = {number: (states or {}).get(number, "active") for number in range(count)}
        self.versions: dict[int, int] = {}
        """1 for streams that are missing here: they have never changed."""
        self.zones = zones or {}
        self.sizes = sizes or {}
        self.streams = {one.name: one for one in streams}
        self.finalizers: dict[ObjectKey, bool] = {}
        self.made = 0
        self.instant = instant

    def view(self) -> BrokersView:
        parts = [part for one in self.streams.values() for part in one.partitions]
        return BrokersView(
            ClusterDescription(
                cluster_id=UUID(CLUSTER_UID).bytes,
                metadata_version=1,
                controller=0,
                voters=tuple(self.states)[:3],
                brokers=tuple(
                    BrokerDescription(number, bytes(16), bytes(16), state=state)
                    for number, state in self.states.items()
                ),
                software_version="1",
                stream_count=len(self.streams),
                partition_count=len(parts),
                standings=tuple(
                    BrokerStanding(
                        number,
                        state,
                        cordoned=state == "cordoned",
                        replicas=sum(number in part.replicas for part in parts),
                        leaders=sum(part.leader == number for part in parts),
                        version=self.versions.get(number, 1),
                    )
                    for number, state in self.states.items()
                ),
            ),
            self.streams,
            zones=self.zones,
            sizes=self.sizes,
        )

    def do(self, action: do.StreamAction | do.RetainStream | do.BrokerAction) -> None:
        match action:
            case do.CordonBroker(broker, version):
                self._say(broker, version, "cordoned")
            case do.UncordonBroker(broker, version):
                self._say(broker, version, "active")
            case do.UnregisterBroker(broker, version):
                self._unregister(broker, version)
            case do.CreateStream():
                assert action.name not in self.streams
                self.made += 1
                made = stream(action.name, action.replicas, action.owner)
                config = action.settings.on(made.config)
                identifier = f"{self.made:016}".encode()
                self.streams[action.name] = replace(made, config=config, stream_id=identifier)
            case do.AlterStream():
                self._alter(action)
            case do.RetainStream(_, name, stream_id, version, owner):
                old = self.streams[name]
                assert (old.stream_id, old.version) == (stream_id, version)
                self.streams[name] = replace(old, owner=owner, version=version + 1)
            case do.DeleteStream():
                gone = self.streams.pop(action.name)
                assert (gone.stream_id, gone.version) == (action.stream_id, action.expected_version)
            case do.Reassign():
                for move in action.moves:
                    self._move(move)
            case do.AddFinalizer():
                self.finalizers[action.object] = True
            case do.RemoveFinalizer():
                self.finalizers[action.object] = False

    def _say(self, broker: int, version: int, state: str) -> None:
        assert version == self.versions.get(broker, 1)
        self.states[broker] = state
        self.versions[broker] = version + 1

    def _unregister(self, broker: int, version: int) -> None:
        parts = [one for each in self.streams.values() for one in each.partitions]
        assert not any(broker in one.replicas for one in parts), "it holds something"
        if broker in self.states:
            assert version == self.versions.get(broker, 1)
            del self.states[broker]
            self.versions[broker] = version + 10
        else:
            assert version == 0

    def _alter(self, action: AlterStream) -> None:
        old = self.streams[action.name]
        assert (old.stream_id, old.version) == (action.stream_id, action.expected_version)
        first = len(old.partitions)
        new = tuple(
            PartitionDescription(number, members[0], 1, 0, members, members)
            for number, members in enumerate(action.new_replicas, first)
        )
        config = action.settings.on(old.config)
        assert config.partitions == first + len(new)
        self.streams[action.name] = replace(
            old,
            config=config,
            owner=old.owner if action.owner is None else action.owner,
            partitions=(*old.partitions, *new),
            version=old.version + 1,
        )

    def arrive(self) -> bool:
        """All moves finish; returns False if there was none."""
        on_their_way = [
            plan.move(each, one, one.target)
            for each in self.streams.values()
            for one in each.partitions
            if one.adding or one.removing
        ]
        for move in on_their_way:
            self._end(move)
        return bool(on_their_way)

    def _move(self, move: MovePartition) -> None:
        """Replaces a running move."""
        old = self.streams[move.name]
        part = old.partitions[move.partition]
        assert move.expected == PartitionVersion(old.stream_id, part.partition_epoch)
        here = tuple(broker for broker in part.replicas if broker not in part.adding)
        leave = tuple(broker for broker in here if broker not in move.replicas)
        self._change(
            move,
            replicas=(*move.replicas, *leave),
            adding=tuple(broker for broker in move.replicas if broker not in here),
            removing=leave,
        )
        if self.instant:
            self._end(move)

    def _end(self, move: MovePartition) -> None:
        leader = self.streams[move.name].partitions[move.partition].leader
        self._change(
            move,
            replicas=move.replicas,
            isr=move.replicas,
            leader=leader if leader in move.replicas else move.replicas[0],
            adding=(),
            removing=(),
        )

    def _change(self, move: MovePartition, **change: Any) -> None:
        old = self.streams[move.name]
        parts = list(old.partitions)
        part = parts[move.partition]
        parts[move.partition] = replace(part, partition_epoch=part.partition_epoch + 1, **change)
        factor = min(len(part.target) for part in parts)
        self.streams[move.name] = replace(
            old, partitions=tuple(parts), config=replace(old.config, replication_factor=factor)
        )


def with_finalizers(objects: Sequence[StreamObject], brokers: Brokers) -> list[StreamObject]:
    """Returns the objects as the actions left them, without those that were released."""
    found = []
    for one in objects:
        finalized = brokers.finalizers.get(one.key, one.finalized)
        if finalized or not one.deleting:
            found.append(replace(one, finalizers=(FINALIZER,) if finalized else ()))
    return found


def settle(
    objects: Sequence[StreamObject], brokers: Brokers, *, crash_at: int | None = None
) -> list[StreamObject]:
    """Plans and executes until there is nothing to do. With `crash_at` the operator ends before the action of
    that number, and another one starts."""
    done = 0
    for _ in range(20):
        now = with_finalizers(objects, brokers)
        decisions = plan_streams(now, CLUSTER, brokers.view())
        retained = plan_retained(now, NAMESPACE, brokers.view(), decisions)
        actions = [one for each in decisions for one in each.actions]
        if not actions and not retained:
            return now
        for action in (*actions, *retained):
            if done == crash_at:
                crash_at = None
                break
            brokers.do(action)
            done += 1
    raise AssertionError(f"it goes on for ever: {actions}")


def without_controller(view: BrokersView) -> BrokersView:
    return replace(view, cluster=replace(view.cluster, controller=None))
