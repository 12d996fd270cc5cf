"""Brokers and replicas: look at them, move what they hold, decide who leads and who votes.

On top of `admin`, which has the streams. Long work (a drain, a reassignment) begins with a call
and is watched with others; a call that is repeated does no harm, where it does not say otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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
from tidelog_proto import admin_pb2

LOST_STATES: Final = ("quarantined", "uncreated", "halted")
"""States of a replica without a usable log: it can be neither written nor read."""

UNREACHABLE: Final = "unreachable"
"""State of a replica whose broker did not answer."""

REPLICAS_TIMEOUT_S: Final = 5.0
"""How long a broker may take to describe its replicas; those of one that takes longer are unreachable."""

ELECT_REQUESTS_MAX: Final = 100
"""One changes some thousands of leaders; more than that have no place in a cluster."""

NOTHING_EXPECTED: Final[Mapping[tuple[str, int], PartitionVersion]] = MappingProxyType({})


class ClusterAdmin(Admin):
    """The administrative half of a client."""

    # --- looking

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller, the voters, and what is in trouble, as any broker knows them."""
        request = admin_pb2.DescribeClusterRequest()

        async def describe(channel: BrokerChannel) -> admin_pb2.DescribeClusterResponse:
            return await channel.admin.DescribeCluster(request, timeout=self._options.request_timeout_s)

        return cluster_wire.cluster_from_proto(await self._call(describe, repeat_indefinite=True))

    async def describe_replicas(self, name: str = "") -> list[ReplicaDescription]:
        """Every copy on every broker, of one stream or of all, by stream, partition and broker.

        Each broker is asked for its own. Of one that does not answer the copies are there, too,
        with the state `unreachable` and no offsets.
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
        return _with_lag(found.values())

    async def list_reassignments(self, names: Sequence[str] = ()) -> list[PartitionStanding]:
        """The partitions whose replicas are moving now: of these streams, or of all."""
        request = admin_pb2.ListReassignmentsRequest(names=names)

        async def ask(channel: BrokerChannel) -> admin_pb2.ListReassignmentsResponse:
            return await channel.admin.ListReassignments(request, timeout=self._options.request_timeout_s)

        answer = await self._call(ask, repeat_indefinite=True)
        return [cluster_wire.partition_standing_from_proto(one) for one in answer.partitions]

    # --- brokers

    async def cordon(self, broker_id: int, *, expected_version: int | None = None) -> None:
        """`broker_id` gets no new replicas and, where another can lead, no leadership.

        With `expected_version` (of its `BrokerStanding`) it raises `VersionConflict` if something was said
        of the broker since, and is not repeated.
        """
        request = admin_pb2.CordonRequest(broker_id=_checked(broker_id), expected_version=expected_version)

        async def ask(channel: BrokerChannel) -> admin_pb2.CordonResponse:
            return await channel.admin.Cordon(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=expected_version is None)

    async def uncordon(self, broker_id: int, *, expected_version: int | None = None) -> None:
        """Ends `cordon`, and what a `drain` began with; `expected_version` as there."""
        request = admin_pb2.UncordonRequest(broker_id=_checked(broker_id), expected_version=expected_version)

        async def ask(channel: BrokerChannel) -> admin_pb2.UncordonResponse:
            return await channel.admin.Uncordon(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=expected_version is None)

    async def drain(self, broker_id: int) -> DrainAnswer:
        """Cordons `broker_id` and begins to move away what it holds; done when no replicas are left.

        Call it again to see how far it is: it begins what is left to begin. `uncordon` and
        `cancel_reassignment` call it off.
        """
        request = admin_pb2.DrainRequest(broker_id=_checked(broker_id))

        async def ask(channel: BrokerChannel) -> admin_pb2.DrainResponse:
            return await channel.admin.Drain(request, timeout=self._options.request_timeout_s)

        answer = await self._call(ask, repeat_indefinite=True)
        return DrainAnswer(replicas_left=answer.replicas_left, begun=answer.begun)

    async def prepare_stop(self, broker_id: int, timeout_s: float = 0.0) -> StopAnswer:
        """Waits up to `timeout_s` until `broker_id` can stop without harm, and says what is in the way.

        Other brokers lead what it led, and it joins no ISR, until it starts again or `cancel_stop`.
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
        """`broker_id` is gone for good: nobody waits for what it holds any more.

        Raises `InvalidRequest` while it is alive and holds replicas; with `only_if_empty` also when it is
        away and holds some; with `expected_version` (0: none of that id was seen) `VersionConflict` if
        something was said of it since. Not repeated.
        """
        request = admin_pb2.UnregisterBrokerRequest(
            broker_id=_checked(broker_id), only_if_empty=only_if_empty, expected_version=expected_version
        )

        async def ask(channel: BrokerChannel) -> admin_pb2.UnregisterBrokerResponse:
            return await channel.admin.UnregisterBroker(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=False)

    async def add_voter(self, broker_id: int) -> None:
        """`broker_id` is to vote on the metadata, once it has caught up, in place of another one."""
        request = admin_pb2.AddVoterRequest(broker_id=_checked(broker_id))

        async def ask(channel: BrokerChannel) -> admin_pb2.AddVoterResponse:
            return await channel.admin.AddVoter(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=True)

    async def remove_voter(self, broker_id: int) -> None:
        """`broker_id` is not to vote on the metadata, once another one does in its place."""
        request = admin_pb2.RemoveVoterRequest(broker_id=_checked(broker_id))

        async def ask(channel: BrokerChannel) -> admin_pb2.RemoveVoterResponse:
            return await channel.admin.RemoveVoter(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=True)

    # --- leaders and replicas

    async def elect_preferred(self, names: Sequence[str] = ()) -> list[PartitionStanding]:
        """Leadership back to the preferred leaders that are in sync; the partitions that changed.

        Leaders settle first (N5), so that nobody who writes is left in doubt; one that does not is deposed
        all the same.
        """
        request = admin_pb2.ElectLeadersRequest(names=names)
        elected: list[PartitionStanding] = []
        for _ in range(ELECT_REQUESTS_MAX):
            answer = await self._elect(request, repeat_indefinite=True)
            elected += map(cluster_wire.partition_standing_from_proto, answer.elected)
            if not answer.left:
                return elected
        raise Unavailable(
            f"{len(elected)} preferred leaders were elected, and {answer.left} are left; ask again"
        )

    async def elect_unclean(self, name: str, partition: int, broker_id: int) -> list[PartitionStanding]:
        """`broker_id` leads the partition with whatever it holds: what else was committed is lost (R6).

        Raises `InvalidRequest` while somebody is there who holds everything. Not repeated.
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
        """Each (stream, partition) gets these replicas, the preferred leader first, as many as are named:
        the stream's replication factor follows that of its partition with the fewest.

        Answers the partitions that begin to move; with `validate_only` those that would. Nothing moves, and
        it raises `StreamNotFound` or `VersionConflict`, if one that is `expected` is not so any more.
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
            raise InvalidRequest("no partition was named; give each its replicas")
        return await self._reassign(admin_pb2.ReassignRequest(targets=named, validate_only=validate_only))

    async def spread(
        self,
        names: Sequence[str] = (),
        *,
        brokers: Sequence[int] = (),
        moves_max: int | None = None,
        validate_only: bool = False,
    ) -> list[PartitionStanding]:
        """Moves replicas of these streams, or of all, so that `brokers`, or all, carry a like number.

        As few move as that takes, `moves_max` at most. With `validate_only` nothing changes.
        """
        if moves_max is not None and not 0 < moves_max < 1 << 32:
            raise InvalidRequest(f"moves_max is {moves_max}; it has to be at least 1", field="moves_max")
        wish = admin_pb2.Spread(names=names, brokers=map(_checked, brokers), moves_max=moves_max)
        return await self._reassign(admin_pb2.ReassignRequest(spread=wish, validate_only=validate_only))

    async def cancel_reassignment(
        self, partitions: Iterable[tuple[str, int | None]] = ()
    ) -> list[PartitionStanding]:
        """Back to the replicas from before: of these partitions (None: all of the stream), or of all."""
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
        """How fast replicas that are far behind, such as those that move, are fed by each other broker.

        On average, from one broker to another; 0: as each broker is set (`catch_up_bytes_per_second`).
        """
        if not 0 <= bytes_per_second < 1 << 63:
            raise InvalidRequest(
                f"bytes_per_second is {bytes_per_second}; it has to be 0 or more", field="bytes_per_second"
            )
        request = admin_pb2.ThrottleRequest(bytes_per_second=bytes_per_second)

        async def ask(channel: BrokerChannel) -> admin_pb2.ThrottleResponse:
            return await channel.admin.Throttle(request, timeout=self._options.request_timeout_s)

        await self._call(ask, repeat_indefinite=True)

    # --- how

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
        """None: it does not answer."""
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
            f"{broker_id} is no broker's id; they are whole numbers from 0", field="broker_id"
        )
    return broker_id


def _checked_partition(number: int) -> int:
    if not 0 <= number < 1 << 31:
        raise InvalidRequest(f"{number} is no partition; they are whole numbers from 0", field="partition")
    return number


def _placed_on(stream: StreamDescription, brokers: Sequence[int]) -> list[ReplicaDescription]:
    """The copies of a stream on brokers that say nothing of them."""
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


def _with_lag(replicas: Iterable[ReplicaDescription]) -> list[ReplicaDescription]:
    """In order, and with what each lacks of its leader's log."""
    found = sorted(replicas, key=lambda one: (one.name, one.partition, one.broker_id))
    ends: dict[tuple[bytes, int], tuple[int, int]] = {}
    for one in found:
        if one.leader:
            # Of two that believe to lead, the later one does.
            key = (one.stream_id, one.partition)
            ends[key] = max(ends.get(key, (0, 0)), (one.leader_epoch, one.log_end_offset))
    lagging = []
    for one in found:
        end = ends.get((one.stream_id, one.partition))
        known = end is not None and one.state not in (*LOST_STATES, UNREACHABLE)
        # The two were not asked at the same moment, so a follower may seem to be ahead.
        lagging.append(replace(one, lag=max(0, end[1] - one.log_end_offset)) if known and end else one)
    return lagging
