"""Gives partitions and their replicas access to the broker: writes, flushes, time, and the other brokers.

A broker without peers has no connections, and no timer here ever runs. Neighbours: `writing.partition` and
`replication.replica` are the callers; `write_rounds` and `flush_rounds` write, `replication.links` has the
connections.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

import structlog

from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Member
from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.messages import FromFollower, FromLeader
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.replication.links import ReplicaLinks
from tidelog_broker.replication.owner import Done
from tidelog_broker.replication.peers import Peers
from tidelog_broker.replication.replica import Replica
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.upkeep.maintenance import Maintenance
from tidelog_broker.writing.flush_rounds import FlushRounds
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.round_work import Task
from tidelog_broker.writing.write_rounds import WriteRounds

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 0.05
"""Interval of the ticks of leaders that wait for a follower."""

TIME_LOOK_MS: Final = 50
"""How often the broker checks for the cluster's clock while leaders wait for it."""

PROPOSALS_MAX: Final = 1000
"""Maximum number of ISR changes in one request to the controller."""


class BrokerPartitionHost:
    """Implements `writing.partition_host.PartitionHost` for one broker. Runs on one event loop."""

    def __init__(
        self,
        broker_id: int,
        incarnation: bytes | None,
        store: LogStore,
        rounds: WriteRounds,
        flushes: FlushRounds,
        maintenance: Maintenance,
        clock: ClusterClock,
        set_aside: Callable[[Partition, str], None],
        *,
        reserve: Reserve | None = None,
        peers: Peers | None = None,
        links: ReplicaLinks | None = None,
    ) -> None:
        """`incarnation`: of this run; None: any incarnation in the image counts as this run. `set_aside` ends
        the service of a partition with a log that contradicts the leader's log. `peers` and `links` None:
        there are no other brokers."""
        self._loop = asyncio.get_running_loop()
        self.broker_id = broker_id
        self._incarnation = incarnation
        self._store = store
        self._rounds = rounds
        self._flushes = flushes
        self._clock = clock
        self._set_aside = set_aside
        self._reserve = reserve
        self._maintenance = maintenance
        self.peers = peers
        self.links = links
        self._ticking: dict[Replica, None] = {}
        self._ticker: asyncio.TimerHandle | None = None
        self._awaiting_time: dict[Replica, None] = {}
        """Replicas that begin to lead once the cluster's clock is known (R18)."""
        self._proposals: list[IsrProposal] = []
        self._role_numbers = itertools.count(1)
        self.stopped = False
        self.unsure = False
        """The controller has not answered for a session's length: another leader may have been elected."""

    def __repr__(self) -> str:
        return f"<BrokerPartitionHost broker={self.broker_id} ticking={len(self._ticking)} {self.links!r}>"

    @property
    def ticking(self) -> int:
        """Number of leaders that wait for a follower."""
        return len(self._ticking)

    def stop(self) -> None:
        """Stops all timers."""
        self.stopped = True
        self._ticking.clear()
        self._awaiting_time.clear()
        if self._ticker is not None:
            self._ticker.cancel()

    def next_role_number(self) -> int:
        return next(self._role_numbers)

    def is_this_run(self, incarnation: bytes) -> bool:
        return self._incarnation is None or incarnation == self._incarnation

    # --- time

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def later(self, ms: int, call: Callable[[], None]) -> None:
        if not self.stopped:
            self._loop.call_later(ms / 1000, call)

    def awaits_time(self, replica: Replica) -> bool:
        if self._incarnation is None or self._clock.known:
            return False
        if not self._awaiting_time:
            log.info("this broker leads no partition until a controller tells it the cluster's time")
            self.later(TIME_LOOK_MS, self._look_for_time)
        self._awaiting_time[replica] = None
        return True

    def _look_for_time(self) -> None:
        if not self._clock.known:
            self.later(TIME_LOOK_MS, self._look_for_time)
            return
        awaiting, self._awaiting_time = self._awaiting_time, {}
        for replica in awaiting:
            replica.time_known()

    def needs_ticks(self, replica: Replica) -> None:
        self._ticking[replica] = None
        if self._ticker is None and not self.stopped:
            self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticker = None
        ticking, self._ticking = self._ticking, {}
        for replica in ticking:
            if replica.tick():
                self.needs_ticks(replica)

    # --- the disk

    def write(self, partition: Partition, work: Callable[[], object], done: Done, size: int) -> None:
        self._rounds.do(Task(partition, work, done, size))

    def flush(self, partition: Partition) -> None:
        self._flushes.request(partition)

    def receive(self, replica: Replica, batches: do.Append, leader_epoch: int) -> int:
        one = replica.log
        if self._reserve is not None:
            self._reserve.check_records()
        return one.cutter.receive(
            batches.data,
            leader_epoch=leader_epoch,
            unclean=batches.unclean,
            save_recovery_point=lambda point: self._store.saved.save_recovery_point(one, point),
        )

    def truncate(self, replica: Replica, offset: int) -> None:
        one = replica.log
        one.cutter.truncate(offset, lambda point: self._store.saved.save_recovery_point(one, point))

    def restart(self, replica: Replica, offset: int, epoch_before: int | None) -> None:
        one = replica.log
        one.cutter.restart_at(offset, lambda at: self._store.saved.save_restart(one, at), epoch_before)

    def advance_start(self, partition: Partition, offset: int) -> None:
        self._maintenance.request_start(partition, offset)

    def quarantine(self, partition: Partition, reason: str) -> None:
        self._set_aside(partition, reason)

    # --- the controller

    def propose(self, replica: Replica, proposal: do.Propose) -> None:
        if self.peers is None or self._incarnation is None:
            return  # There is no other broker.
        if not self._proposals:
            self._loop.call_soon(self._send_proposals)
        self._proposals.append(
            IsrProposal(
                proposer=Member(self.broker_id, self._incarnation),
                stream_id=replica.key[0],
                partition=replica.key[1],
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                isr=tuple(Member(*member) for member in proposal.isr),
            )
        )

    def _send_proposals(self) -> None:
        proposals, self._proposals = self._proposals, []
        if self.peers is not None and not self.stopped:
            for start in range(0, len(proposals), PROPOSALS_MAX):
                self.peers.propose_isr(proposals[start : start + PROPOSALS_MAX])

    # --- other brokers

    def leads(self, replica: Replica) -> None:
        if self.links is not None:
            self.links.leads(replica)

    def follow(self, replica: Replica, leader: int) -> None:
        if self.links is not None:
            self.links.follow(replica, leader)

    def unfollow(self, replica: Replica, leader: int) -> None:
        if self.links is not None:
            self.links.unfollow(replica, leader)

    def switch_connection(self, replica: Replica, leader: int) -> None:
        if self.links is not None:
            self.links.switch_connection(replica, leader)

    def say(self, replica: Replica, leader: int, message: FromFollower) -> None:
        if self.links is not None:
            self.links.say(replica, leader, message)

    def answer(self, replica: Replica, broker: int, message: FromLeader) -> None:
        if self.links is not None:
            self.links.answer(replica, broker, message)

    def send_batches(self, replica: Replica, wanted: do.SendBatches) -> None:
        if self.links is not None:
            self.links.send_batches(replica, wanted)
