"""What each effect of a replica's rules does on a simulated broker: to its log, its links, its controller.

Neighbours: `replica` has the roles, `core.replication.effects` the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.world import MS
from tidelog.errors import DataCorrupt, DiskFull, TidelogError
from tidelog_broker.core.metadata.isr_changes import IsrProposal
from tidelog_broker.core.metadata.isr_changes import Member as ProposedMember
from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.core.replication.messages import Refusal, Refused

if TYPE_CHECKING:
    from simulator.replica import Replica

READ_BYTES: Final = 16 << 10
"""Of one answer to a follower."""
SAVE_AGAIN_US: Final = 500 * MS


class Performing:
    """See the module. Of one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def one(self, role: LeaderPartition | FollowerPartition, effect: object) -> None:
        if isinstance(role, LeaderPartition):
            self._leading(role, effect)
        else:
            self._following(role, effect)

    def _leading(self, role: LeaderPartition, effect: object) -> None:
        replica = self._replica
        match effect:
            case do.Answer(broker, message):
                replica.broker.links.answer(broker, replica.key, message)
            case do.SendBatches(broker, offset, end):
                self._send_batches(role, broker, offset, end)
            case do.Propose():
                self._propose(role, effect)
            case do.Committed(high_watermark):
                replica.broker.checks.committed(replica, high_watermark)
                replica.answer_committed()
            case do.FlushHistory():
                replica.broker.flushing.flush(replica)
            case do.AdvanceStart(offset):
                self.advance_start(role, offset)
            case _:
                raise AssertionError(f"no effect of a leader: {effect}")

    def _following(self, role: FollowerPartition, effect: object) -> None:
        replica = self._replica
        match effect:
            case do.Ask(position):
                replica.broker.links.say(role.leader, replica.key, replica.number, position)
            case do.Say(durable):
                replica.broker.links.say(role.leader, replica.key, replica.number, durable)
            case do.Append():
                replica.operate(lambda: self._append(role, effect))
            case do.Truncate(offset):
                replica.operate(lambda: self._truncate(role, offset))
            case do.Restart(offset, epoch_before):
                replica.operate(lambda: self._restart(role, offset, epoch_before))
            case do.BeginUnclean(epoch):
                self._begin_unclean(epoch)
            case do.Quarantine(reason):
                replica.broker.hosted.quarantine(replica, reason)
            case do.Wait(ms):
                replica.broker.after(ms * MS, lambda: self._waited(role))
            case do.SwitchLane():
                role.lost()
                replica.do_all(role, role.begin())
            case do.AdvanceStart(offset):
                self.advance_start(role, offset)
            case _:
                raise AssertionError(f"no effect of a follower: {effect}")

    def _begin_unclean(self, epoch: int) -> None:
        replica = self._replica
        try:
            replica.log.begin_unclean_epoch(epoch)
        except TidelogError as error:
            replica.tell(f"did not note the unclean epoch {epoch}: {error}")
        replica.broker.flushing.flush(replica)

    def _append(self, role: FollowerPartition, effect: do.Append) -> None:
        replica = self._replica
        refusal: TidelogError | None = None
        try:
            replica.log.receive(
                effect.data,
                leader_epoch=role.leader_epoch,
                unclean=effect.unclean,
                save_recovery_point=lambda point: replica.broker.hosted.store.save_recovery_point(
                    replica.log, point
                ),
            )
        except TidelogError as error:
            # What fits is there all the same.
            refusal = error
            replica.tell(f"did not take batches: {error}")
        replica.broker.checks.replicated(replica)
        replica.broker.flushing.wrote(replica)
        if replica.role is role:
            replica.do_all(role, role.appended() if refusal is None else role.not_appended())

    def _truncate(self, role: FollowerPartition, offset: int) -> None:
        replica, store = self._replica, self._replica.broker.hosted.store
        before = replica.log.end_offset
        try:
            replica.log.truncate(offset, lambda point: store.save_recovery_point(replica.log, point))
        except OSError as error:
            self._not_cut(role, error)
            return
        replica.tell(f"truncated from {before} to {replica.log.end_offset} (hw {replica.high_watermark})")
        replica.broker.checks.truncated(replica, before)
        if replica.role is role:
            replica.do_all(role, role.truncated())

    def _not_cut(self, role: FollowerPartition, error: Exception) -> None:
        """Nothing happened, for want of room."""
        self._replica.tell(f"could not cut its log: {error}")
        if self._replica.role is role:
            self._replica.do_all(role, role.not_appended())

    def _restart(self, role: FollowerPartition, offset: int, epoch_before: int | None) -> None:
        replica = self._replica
        store = replica.broker.hosted.store
        empty = replica.log.end_offset == replica.log.start_offset and last_epoch(replica.log) is None
        try:
            replica.log.restart_at(offset, lambda at: store.save_restart(replica.log, at), epoch_before)
        except DiskFull as error:
            self._not_cut(role, error)
            return
        replica.tell(f"starts over at {offset}")
        replica.broker.checks.restarted(replica, empty=empty)
        if replica.role is role:
            replica.do_all(role, role.restarted())

    def advance_start(self, role: LeaderPartition | FollowerPartition, offset: int) -> None:
        self._replica.log.advance_start(offset)
        self._save_start(role)

    def _save_start(self, role: LeaderPartition | FollowerPartition) -> None:
        replica = self._replica
        if replica.removed:
            return
        if not replica.broker.flushing.save([replica]):
            replica.broker.after(SAVE_AGAIN_US, lambda: self._save_start(role))
        elif isinstance(role, LeaderPartition):
            replica.do_all(role, role.start_moved(replica.broker.now_ms))
        else:
            replica.do_all(role, role.start_saved())

    def _waited(self, role: FollowerPartition) -> None:
        replica = self._replica
        if replica.role is role:
            replica.do_all(role, role.waited())

    def _send_batches(self, role: LeaderPartition, broker: int, offset: int, end: int) -> None:
        replica = self._replica
        try:
            chunk = replica.log.read(offset, READ_BYTES, end)
        except DataCorrupt:
            replica.broker.checks.mark("2c damage met by a follower")
            chunk = None
        if chunk is None:
            replica.broker.links.answer(broker, replica.key, Refused(Refusal.DAMAGED, role.leader_epoch))
            return
        data = b"".join(bytes(part) for part in chunk.parts)
        replica.broker.checks.given(replica, data)
        replica.broker.links.answer(broker, replica.key, role.batches(offset, data, chunk.next_offset))

    def _propose(self, role: LeaderPartition, effect: do.Propose) -> None:
        replica = self._replica
        proposal = IsrProposal(
            proposer=ProposedMember(replica.broker.id, replica.broker.incarnation),
            stream_id=replica.key[0],
            partition=replica.key[1],
            leader_epoch=effect.leader_epoch,
            partition_epoch=effect.partition_epoch,
            isr=tuple(ProposedMember(*member) for member in effect.isr),
        )
        replica.broker.asking.propose_isr(proposal)
