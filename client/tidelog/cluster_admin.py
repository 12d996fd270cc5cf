"""Administration of brokers and replicas: describe them, move replicas, choose leaders and voters.

It extends `admin`, which has the streams. One call starts long work (a drain, a reassignment), other
calls show its progress. A call may be repeated unless its docstring says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from tidelog import cluster_wire
from tidelog._connecting.broker_channel import BrokerChannel, on
from tidelog.admin import Admin
from tidelog.errors import InvalidRequest, TidelogError, Unavailable
from tidelog.model import (
    ClusterDescription,
    DrainAnswer,
    PartitionStanding,
    PartitionVersion,
    ReplicaDescription,
    StopAnswer,
    StreamDescription,
)
from tidelog.model.replica_lag import UNREACHABLE, with_lag
from tidelog_proto import admin_pb2

REPLICAS_TIMEOUT_S: Final = 5.0
"""The time that a broker may take to describe its replicas; after it they count as unreachable."""

ELECT_REQUESTS_MAX: Final = 100
"""One request changes some thousands of leaders; no cluster needs more requests than this."""

NOTHING_EXPECTED: Final[Mapping[tuple[str, int], PartitionVersion]] = MappingProxyType({})


class ClusterAdmin(Admin):
    """The part of a client that administers brokers and replicas."""

    # --- descriptions

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller, the voters, and the partitions in trouble. Any broker answers."""
        request = admin_pb2.DescribeClusterRequest()

        async def describe(channel: BrokerChannel) -> admin_pb2.DescribeClusterResponse:
            return await channel.admin.DescribeCluster(request, timeout=self._options.request_timeout_s)

        return cluster_wire.cluster_from_proto(await self._call(describe, repeat_indefinite=True))

    async def describe_replicas(self, name: str = "") -> list[ReplicaDescription]:
        """The replicas of one stream or of all, sorted by stream, partition and broker.

        Each broker describes its own replicas. If a broker does not answer, its replicas have the state
        `unreachable` and no offsets.
        """
        cluster = await self.describe_cluster()
        addresses = self._channels.listeners.reachable(cluster.brokers)
        ask = partial(self._replicas_at, name)
        asked = await asyncio.gather(*(ask(addresses.get(one.broker_id)) for one in cluster.brokers))
        found = {
            (replica.stream_id, replica.partition, replica.broker_id): replica
            for answer in asked
            for replica in answer or ()
        }
        silent = [
            broker.broker_id for broker, answer in zip(cluster.brokers, asked, strict=True) if answer is None
        ]
        if silent:
            streams = [await self.describe_stream(name)] if name else await self.list_streams()
            for stream in streams:
                for placed in _placed_on(stream, silent):
                    found.setdefault((placed.stream_id, placed.partition, placed.broker_id), placed)
        return with_lag(found.values())

    async def list_reassignments(self, names: Sequence[str] = ()) -> list[PartitionStanding]:
        """The partitions whose replicas are moving now, of these streams or of all."""
        request = admin_pb2.ListReassignmentsRequest(names=names)

        async def ask(channel: BrokerChannel) -> admin_pb2.ListReassignmentsResponse:
            return await channel.admin.ListReassignments(request, timeout=self._options.request_timeout_s)

        answer = await self._call(ask, repeat_indefinite=True)
        return [cluster_wire.partition_standing_from_proto(one) for one in answer.partitions]

    # --- brokers

    async def cordon(self, broker_id: int, *, expected_version: int | None = None) -> None:
        """Gives the broker no new replicas and, if another broker can lead, no leadership.

        With `expected_version` (of its `BrokerStanding`) it raises `VersionConflict` if a command has
        changed the broker since, and it is not repeated after an indefinite error.
        """
        request = admin_pb2.CordonRequest(broker_id=_checked(broker_id), expected_version=expected_version)

        async def ask(channel: BrokerChannel) -> admin_pb2.CordonResponse:
            return await channel.admin.Cordon(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=expected_version is None)

    async def uncordon(self, broker_id: int, *, expected_version: int | None = None) -> None:
        """Ends `cordon`, also that of a `drain`; `expected_version` as in `cordon`."""
        request = admin_pb2.UncordonRequest(broker_id=_checked(broker_id), expected_version=expected_version)

        async def ask(channel: BrokerChannel) -> admin_pb2.UncordonResponse:
            return await channel.admin.Uncordon(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=expected_version is None)

    async def drain(self, broker_id: int) -> DrainAnswer:
        """Cordons the broker and begins to move its replicas away; it is done when no replicas are left.

        Call it again to see the progress and to begin the moves that are left. `uncordon` and
        `cancel_reassignment` undo it.
        """
        request = admin_pb2.DrainRequest(broker_id=_checked(broker_id))

        async def ask(channel: BrokerChannel) -> admin_pb2.DrainResponse:
            return await channel.admin.Drain(request, timeout=self._options.request_timeout_s)

        answer = await self._call(ask, repeat_indefinite=True)
        return DrainAnswer(replicas_left=answer.replicas_left, begun=answer.begun)

    async def prepare_stop(self, broker_id: int, timeout_s: float = 0.0) -> StopAnswer:
        """Waits up to `timeout_s` until the broker can stop without harm, and returns what prevents it.

        Other brokers take over its leaderships. The broker joins no ISR until it starts again or until
        `cancel_stop`.
        """
        request = admin_pb2.PrepareStopRequest(
            broker_id=_checked(broker_id), timeout_ms=round(timeout_s * 1000)
        )

        async def ask(channel: BrokerChannel) -> admin_pb2.PrepareStopResponse:
            timeout = timeout_s + self._options.request_timeout_s
            return await channel.admin.PrepareStop(request, timeout=timeout)

        return cluster_wire.stop_answer_from_proto(await self._call(ask, repeat_indefinite=True))

    async def cancel_stop(self, broker_id: int) -> None:
        """Undoes `prepare_stop`: `broker_id` may lead and join ISRs again. What moved away stays away."""
        request = admin_pb2.CancelStopRequest(broker_id=_checked(broker_id))

        async def ask(broker: BrokerChannel) -> admin_pb2.CancelStopResponse:
            return await broker.admin.CancelStop(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=True)

    async def unregister_broker(
        self, broker_id: int, *, only_if_empty: bool = False, expected_version: int | None = None
    ) -> None:
        """Removes a broker that will not come back: the cluster no longer waits for its replicas.

        Raises `InvalidRequest` while the broker is alive and holds replicas; with `only_if_empty` also if
        it is away and holds replicas. With `expected_version` (0: no broker with this id was seen) it
        raises `VersionConflict` if a command has changed the broker since. It is not repeated.
        """
        request = admin_pb2.UnregisterBrokerRequest(
            broker_id=_checked(broker_id), only_if_empty=only_if_empty, expected_version=expected_version
        )

        async def ask(channel: BrokerChannel) -> admin_pb2.UnregisterBrokerResponse:
            return await channel.admin.UnregisterBroker(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=False)

    async def add_voter(self, broker_id: int) -> None:
        """Makes the broker a voter of the metadata quorum, in place of another, once it has caught up."""
        request = admin_pb2.AddVoterRequest(broker_id=_checked(broker_id))

        async def ask(channel: BrokerChannel) -> admin_pb2.AddVoterResponse:
            return await channel.admin.AddVoter(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=True)

    async def remove_voter(self, broker_id: int) -> None:
        """Makes the broker an observer of the metadata quorum, once another broker votes in its place."""
        request = admin_pb2.RemoveVoterRequest(broker_id=_checked(broker_id))

        async def ask(channel: BrokerChannel) -> admin_pb2.RemoveVoterResponse:
            return await channel.admin.RemoveVoter(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=True)

    # --- leaders and replicas

    async def elect_preferred(self, names: Sequence[str] = ()) -> list[PartitionStanding]:
        """Gives leadership to the preferred leaders that are in sync; returns the partitions that changed.

        Each old leader first settles (N5): it takes no more appends and commits those that it has, so that
        no producer is left in doubt. A leader that does not settle in time is replaced all the same.
        """
        request = admin_pb2.ElectLeadersRequest(names=names)
        elected: list[PartitionStanding] = []
        for _ in range(ELECT_REQUESTS_MAX):
            answer = await self._elect(request, repeat_indefinite=True)
            elected += map(cluster_wire.partition_standing_from_proto, answer.elected)
            if not answer.left:
                return elected
        raise Unavailable(
            f"{len(elected)} preferred leaders were elected, {answer.left} are left; run the election again"
        )

    async def elect_unclean(self, name: str, partition: int, broker_id: int) -> list[PartitionStanding]:
        """Makes the broker the leader with the records that it holds: other committed records are lost (R6).

        Raises `InvalidRequest` while a replica is available that holds everything. It is not repeated.
        """
        unclean = admin_pb2.UncleanElection(
            name=name, partition=_checked_partition(partition), broker_id=_checked(broker_id)
        )
        request = admin_pb2.ElectLeadersRequest(unclean=unclean)
        answer = await self._elect(request, repeat_indefinite=False)
        return [cluster_wire.partition_standing_from_proto(one) for one in answer.elected]

    async def reassign(
        self,
        targets: Mapping[tuple[str, int], Sequence[int]],
        *,
        expected: Mapping[tuple[str, int], PartitionVersion] = NOTHING_EXPECTED,
        validate_only: bool = False,
    ) -> list[PartitionStanding]:
        """Gives each (stream, partition) these replicas (broker ids), the preferred leader first.

        Their number may change: the stream's replication factor becomes that of its partition with the
        fewest replicas. Returns the partitions that begin to move; with `validate_only` those that would.
        If a partition differs from its `expected` state, nothing moves and it raises `StreamNotFound` or
        `VersionConflict`.
        """
        named = [
            admin_pb2.PartitionTarget(
                name=name,
                partition=_checked_partition(partition),
                replicas=map(_checked, replicas),
                stream_id=expected[name, partition].stream_id if (name, partition) in expected else None,
                partition_epoch=expected[name, partition].epoch if (name, partition) in expected else None,
            )
            for (name, partition), replicas in targets.items()
        ]
        if not named:
            raise InvalidRequest("no partition was given; give at least one with its replicas")
        return await self._reassign(admin_pb2.ReassignRequest(targets=named, validate_only=validate_only))

    async def spread(
        self,
        names: Sequence[str] = (),
        *,
        brokers: Sequence[int] = (),
        moves_max: int | None = None,
        validate_only: bool = False,
    ) -> list[PartitionStanding]:
        """Moves replicas of these streams (or of all), so that `brokers` (or all) hold about the same number.

        It moves as few replicas as possible, and at most `moves_max`. With `validate_only` nothing changes.
        """
        if moves_max is not None and not 0 < moves_max < 1 << 32:
            raise InvalidRequest(f"moves_max is {moves_max}; it must be at least 1", field="moves_max")
        wish = admin_pb2.Spread(names=names, brokers=map(_checked, brokers), moves_max=moves_max)
        return await self._reassign(admin_pb2.ReassignRequest(spread=wish, validate_only=validate_only))

    async def cancel_reassignment(
        self, partitions: Iterable[tuple[str, int | None]] = ()
    ) -> list[PartitionStanding]:
        """Restores the replicas from before the reassignment: of these partitions, or of all.

        A partition number of None means all partitions of the stream.
        """
        request = admin_pb2.CancelReassignmentRequest(
            partitions=[
                admin_pb2.PartitionName(
                    name=name, partition=None if number is None else _checked_partition(number)
                )
                for name, number in partitions
            ]
        )

        async def ask(channel: BrokerChannel) -> admin_pb2.CancelReassignmentResponse:
            return await channel.admin.CancelReassignment(request, timeout=self._options.request_timeout_s)

        answer = await self._call(ask, repeat_indefinite=True)
        return [cluster_wire.partition_standing_from_proto(one) for one in answer.cancelled]

    async def throttle(self, bytes_per_second: int) -> None:
        """Limits the rate at which brokers send to replicas that are far behind, for example moving ones.

        Bytes per second on average, from one broker to another; 0: as each broker is configured
        (`catch_up_bytes_per_second`).
        """
        if not 0 <= bytes_per_second < 1 << 63:
            raise InvalidRequest(
                f"bytes_per_second is {bytes_per_second}; it must be 0 or more", field="bytes_per_second"
            )
        request = admin_pb2.ThrottleRequest(bytes_per_second=bytes_per_second)

        async def ask(channel: BrokerChannel) -> admin_pb2.ThrottleResponse:
            return await channel.admin.Throttle(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=True)

    # --- requests

    async def _elect(
        self, request: admin_pb2.ElectLeadersRequest, *, repeat_indefinite: bool
    ) -> admin_pb2.ElectLeadersResponse:
        async def ask(channel: BrokerChannel) -> admin_pb2.ElectLeadersResponse:
            return await channel.admin.ElectLeaders(request, timeout=self._options.request_timeout_s)

        return await self._call(ask, repeat_indefinite=repeat_indefinite)

    async def _reassign(self, request: admin_pb2.ReassignRequest) -> list[PartitionStanding]:
        async def ask(channel: BrokerChannel) -> admin_pb2.ReassignResponse:
            return await channel.admin.Reassign(request, timeout=self._options.request_timeout_s)

        answer = await self._call(ask, repeat_indefinite=True)
        return [cluster_wire.partition_standing_from_proto(one) for one in answer.begun]

    async def _replicas_at(self, name: str, address: str | None) -> list[ReplicaDescription] | None:
        """The replicas on one broker; None: the broker does not answer."""
        if address is None:
            return None
        request = admin_pb2.DescribeReplicasRequest(name=name)

        async def describe(channel: BrokerChannel) -> admin_pb2.DescribeReplicasResponse:
            timeout = min(REPLICAS_TIMEOUT_S, self._options.request_timeout_s)
            return await channel.admin.DescribeReplicas(request, timeout=timeout)

        try:
            answer = await on(self._channels.to(address), describe)
        except TidelogError as error:
            if error.retriable or not error.definite:
                return None
            raise
        return [cluster_wire.replica_from_proto(replica) for replica in answer.replicas]


def _checked(broker_id: int) -> int:
    if not 0 <= broker_id < 1 << 31:
        raise InvalidRequest(
            f"{broker_id} is not a broker id; ids are whole numbers from 0", field="broker_id"
        )
    return broker_id


def _checked_partition(number: int) -> int:
    if not 0 <= number < 1 << 31:
        raise InvalidRequest(
            f"{number} is not a partition; partitions are whole numbers from 0", field="partition"
        )
    return number


def _placed_on(stream: StreamDescription, brokers: Sequence[int]) -> list[ReplicaDescription]:
    """The replicas of a stream on brokers that did not answer."""
    return [
        ReplicaDescription(
            name=stream.name,
            stream_id=stream.stream_id,
            partition=partition.partition,
            broker_id=broker,
            leader=False,
            state=UNREACHABLE,
            log_start_offset=0,
            high_watermark=0,
            log_end_offset=0,
            durable_offset=0,
            bytes=0,
            segments=0,
            role="",
            in_sync=broker in partition.isr,
        )
        for partition in stream.partitions
        for broker in partition.replicas
        if broker in brokers
    ]
