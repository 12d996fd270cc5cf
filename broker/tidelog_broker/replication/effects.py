"""Performs the effects of a replica's role, and reports their outcomes to the role.

Effects that write to the disk run in order with all writes of the broker. If the replica has another role
when the write ends, the outcome is not reported to the new role. Neighbour: `replica`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar, assert_never

import structlog

from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.replication.host import ReplicaHost
from tidelog_broker.replication.owner import Done, ReplicaOwner
from tidelog_broker.storage.log.partition_log import PartitionLog

log = structlog.get_logger(__name__)


class Performing(Protocol):
    """The replica that the effects belong to."""

    log: PartitionLog
    warm: bool

    @property
    def host(self) -> ReplicaHost[Self]: ...

    @property
    def owner(self) -> ReplicaOwner: ...

    def write(self, work: Callable[[], object], done: Done, size: int | None = None) -> None: ...

    def event_of(self, role: FollowerPartition, event: Callable[[], list[do.FollowerEffect]]) -> None: ...


R = TypeVar("R", bound=Performing)


def perform_for_leader(replica: R, effect: do.LeaderEffect) -> None:
    host = replica.host
    match effect:
        case do.Committed(high_watermark):
            replica.owner.committed(high_watermark)
        case do.SendBatches():
            host.send_batches(replica, effect)
        case do.Answer(broker, message):
            host.answer(replica, broker, message)
        case do.Propose():
            host.propose(replica, effect)
        case do.FlushHistory():
            replica.owner.flush()
        case do.AdvanceStart(offset):
            replica.owner.advance_start(offset)
        case _:
            assert_never(effect)


def perform_for_follower(replica: R, role: FollowerPartition, effect: do.FollowerEffect) -> None:
    host = replica.host
    match effect:
        case do.SendPosition(position):
            host.say(replica, role.leader, position)
        case do.SendDurable(durable):
            host.say(replica, role.leader, durable)
        case do.Append():
            _append(replica, role, effect)
        case do.Truncate(offset):
            _cut(replica, role, lambda: host.truncate(replica, offset), role.truncated)
        case do.Restart(offset, epoch_before):
            _cut(replica, role, lambda: host.restart(replica, offset, epoch_before), role.restarted)
        case do.BeginUnclean(epoch):
            _note(replica, lambda: replica.log.writer.begin_unclean_epoch(epoch))
        case do.Wait(ms):
            host.later(ms, lambda: replica.event_of(role, role.waited))
        case do.AdvanceStart(offset):
            replica.owner.advance_start(offset)
        case do.SwitchLane():
            host.switch_connection(replica, role.leader)
        case do.Quarantine(reason):
            replica.owner.quarantine(reason)
        case _:
            assert_never(effect)


def _append(replica: R, role: FollowerPartition, effect: do.Append) -> None:
    def work() -> object:
        replica.warm = True
        return replica.host.receive(replica, effect, role.leader_epoch)

    def done(error: Exception | None) -> None:
        if error is not None:
            log.warning(
                "a follower could not append its leader's batches", partition=repr(replica), error=str(error)
            )
        replica.event_of(role, role.appended if error is None else role.not_appended)

    # An empty log may have to restart at another offset, with syncs of its own.
    empty = replica.log.end_offset == replica.log.start_offset
    replica.write(work, done, None if empty else len(effect.data))


def _cut(
    replica: R,
    role: FollowerPartition,
    work: Callable[[], None],
    then: Callable[[], list[do.FollowerEffect]],
) -> None:
    before = replica.log.end_offset

    def done(error: Exception | None) -> None:
        if error is not None:
            # Nothing was changed: the disk has no room.
            log.warning("a log could not be cut", partition=repr(replica), error=str(error))
            replica.event_of(role, role.not_appended)
            return
        log.info("a follower cut its log", partition=repr(replica), end_before=before)
        replica.event_of(role, then)

    replica.write(work, done)


def _note(replica: R, work: Callable[[], object]) -> None:
    def done(error: Exception | None) -> None:
        if error is not None:
            # The role asks for it again with the next message of the leader.
            log.warning(
                "the start of an unclean epoch could not be written",
                partition=repr(replica),
                error=str(error),
            )

    replica.write(work, done)
