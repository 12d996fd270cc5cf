"""Has done what a replica's role wants, and tells it what became of it.

What takes a while goes to the lane of all writes; when it is done the role may be another one, which
then hears nothing of it. Neighbour: `replica`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.following import FollowerPartition

if TYPE_CHECKING:
    from tidelog_broker.replication.replica import Replica

log = structlog.get_logger(__name__)


def perform_for_leader(replica: Replica, effect: object) -> None:
    host = replica.host
    match effect:
        case do.Committed(high_watermark):
            replica.committed(high_watermark)
        case do.SendBatches():
            host.send_batches(replica, effect)
        case do.Answer(broker, message):
            host.answer(replica, broker, message)
        case do.Propose():
            host.propose(replica, effect)
        case do.FlushHistory():
            host.flush(replica)
        case do.AdvanceStart(offset):
            host.advance_start(replica, offset)
        case _:
            raise AssertionError(f"no effect of a leader: {effect}")


def perform_for_follower(replica: Replica, role: FollowerPartition, effect: object) -> None:
    host = replica.host
    match effect:
        case do.Ask(position):
            host.say(replica, role.leader, position)
        case do.Say(durable):
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
            host.advance_start(replica, offset)
        case do.SwitchLane():
            host.switch_lane(replica, role.leader)
        case do.Quarantine(reason):
            host.quarantine(replica, reason)
        case _:
            raise AssertionError(f"no effect of a follower: {effect}")


def _append(replica: Replica, role: FollowerPartition, effect: do.Append) -> None:
    def work() -> object:
        replica.warm = True
        return replica.host.receive(replica, effect, role.leader_epoch)

    def done(error: Exception | None) -> None:
        if error is not None:
            log.warning("a follower did not take batches", partition=repr(replica), error=str(error))
        replica.event_of(role, role.appended if error is None else role.not_appended)

    # An empty log may have to begin again, with syncs of its own.
    empty = replica.log.end_offset == replica.log.start_offset
    replica.write(work, done, None if empty else len(effect.data))


def _cut(
    replica: Replica,
    role: FollowerPartition,
    work: Callable[[], None],
    then: Callable[[], list[do.FollowerEffect]],
) -> None:
    before = replica.log.end_offset

    def done(error: Exception | None) -> None:
        if error is not None:
            # Nothing happened, for want of room.
            log.warning("a log could not be cut", partition=repr(replica), error=str(error))
            replica.event_of(role, role.not_appended)
            return
        log.info("a follower cut its log", partition=repr(replica), end_before=before)
        replica.event_of(role, then)

    replica.write(work, done)


def _note(replica: Replica, work: Callable[[], object]) -> None:
    def done(error: Exception | None) -> None:
        if error is not None:
            # Asked for again with the next word of the leader.
            log.warning("an epoch could not be noted", partition=repr(replica), error=str(error))

    replica.write(work, done)
