"""Heals damaged ranges of this broker's logs with data from other replicas, and sends ranges to them (2c).

A follower asks its leader. A damaged leader that is not replaced asks a member of the ISR. Requests
use the existing connection between the two brokers. Only a few partitions are healed at a time, and each
has at most one request open, so that healing costs the other replicas little. After an unanswered
request the broker asks the next replica.

Neighbours: `core.replication.healing` has the rules, `storage.log.healer` puts batches in their place,
`scrubber` and readers find damage, `replication.links` carries requests and answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sized
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol

import structlog

from tidelog.errors import TidelogError
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.healing import RANGE_BYTES_MAX, brokers_with_range, may_send_range
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import RangeHeld, RangeWanted
from tidelog_broker.errors import StorageFailure
from tidelog_broker.replication.replica import Key, Replica
from tidelog_broker.storage.segments.reading import Chunk
from tidelog_broker.storage.segments.scan import DamagedRange
from tidelog_broker.writing.flush_rounds import Fail, FlushRounds
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.write_rounds import WriteRounds

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 0.5
"""Interval between two searches for damaged logs."""

HEALING_MAX: Final = 2
"""Partitions that are healed at the same time."""

ANSWERS_MAX: Final = 2
"""Ranges that are read for other replicas at the same time; further requests get an empty answer, and the
replica asks again."""

ANSWER_SECONDS_MAX: Final = 5.0
"""A request without an answer for this long counts as lost."""

HAND_OVER_SECONDS: Final = 3.0
"""A damaged leader waits this long for an undamaged replica to replace it; then it asks other replicas."""

RETRY_SECONDS: Final = 3.0
"""Pause after every candidate was asked without success."""


class Wires(Protocol):
    """The connections to other replicas."""

    def send_range(self, replica: Replica, broker: int, message: RangeWanted | RangeHeld) -> bool:
        """Sends a message to a broker; False: there is no connection, or it accepts no more for now."""


class _Question(NamedTuple):
    partition: Partition
    damage: DamagedRange
    broker: int
    candidates: int
    """Number of replicas that can be asked."""
    until: float
    """When the request counts as lost, on the event loop's clock."""


class Healer:
    """Heals the damaged ranges of one broker's logs. Belongs to one event loop."""

    def __init__(
        self,
        partitions: Mapping[Key, Partition],
        damaged_folders: Sized,
        rounds: WriteRounds,
        flushes: FlushRounds,
        *,
        reads: Executor,
        heals: Executor,
        fail: Fail,
        healed: Callable[[], None],
    ) -> None:
        """`damaged_folders` is empty while no log of this broker is damaged. `reads` executes reads for other
        replicas, `heals` executes writes. `healed` is called once for each range that is whole again."""
        self._loop = asyncio.get_running_loop()
        self._partitions = partitions
        self._damaged_folders = damaged_folders
        self._wires: Wires | None = None
        """None: the healer does not run yet."""
        self._rounds = rounds
        self._flushes = flushes
        self._reads = reads
        self._heals = heals
        self._fail = fail
        self._healed = healed
        self._questions: dict[Key, _Question] = {}
        """Requests without an answer yet."""
        self._mending: dict[Key, asyncio.Task[None]] = {}
        self._not_before: dict[Key, float] = {}
        """When damaged partitions that could not be healed may ask again; event loop's clock."""
        self._attempts: dict[Key, int] = {}
        """Attempts without success per partition; the number selects the replica to ask next."""
        self._leading_since: dict[Key, float] = {}
        """When damaged partitions were first seen to be led here; event loop's clock."""
        self._answers = 0
        """Number of ranges that are being read for other replicas."""

    def __repr__(self) -> str:
        return f"<Healer asking={len(self._questions)} mending={len(self._mending)} vain={self._attempts}>"

    async def run(self, wires: Wires) -> None:
        """Runs until cancelled. `wires` carry the requests and answers."""
        self._wires = wires
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._look()
            except Exception:
                log.exception("healing failed; the broker tries again")

    async def stop(self) -> None:
        """Cancels all healing; a write that runs in a thread still completes or leaves nothing behind."""
        for task in self._mending.values():
            task.cancel()
        await asyncio.gather(*self._mending.values(), return_exceptions=True)

    def _send(self, replica: Replica, broker: int, message: RangeWanted | RangeHeld) -> bool:
        return self._wires is not None and self._wires.send_range(replica, broker, message)

    # --- damage on this broker

    def _look(self) -> None:
        now = self._loop.time()
        for question in list(self._questions.values()):
            if now > question.until:
                self._in_vain(question)
        for key in [key for key in self._not_before if not self._is_damaged(key)]:
            del self._not_before[key]
            self._attempts.pop(key, None)
        for key in [key for key in self._leading_since if not self._is_damaged(key)]:
            del self._leading_since[key]
        if not self._damaged_folders:
            return
        for key, partition in self._partitions.items():
            if len(self._questions) + len(self._mending) >= HEALING_MAX:
                return
            if partition.log.damaged and key not in self._questions and key not in self._mending:
                self._ask(key, partition, now)

    def _is_damaged(self, key: Key) -> bool:
        partition = self._partitions.get(key)
        return partition is not None and bool(partition.log.damaged)

    def _ask(self, key: Key, partition: Partition, now: float) -> None:
        role = partition.replica.role
        if role is None or now < self._not_before.get(key, 0.0) or self._may_hand_over(key, role, now):
            return
        brokers = brokers_with_range(role)
        # A range below the log start offset is not healed: its file will be removed.
        damage = next((one for one in partition.log.damaged if one.end > partition.log.start_offset), None)
        if not brokers or damage is None:
            return
        broker = brokers[self._attempts.get(key, 0) % len(brokers)]
        question = _Question(partition, damage, broker, len(brokers), now + ANSWER_SECONDS_MAX)
        self._questions[key] = question
        if not self._send(partition.replica, broker, RangeWanted(role.leader_epoch, *damage)):
            self._in_vain(question)

    def _may_hand_over(self, key: Key, role: LeaderPartition | FollowerPartition, now: float) -> bool:
        """Whether this replica leads and the controller may still replace it because of the damage (R6)."""
        if isinstance(role, FollowerPartition):
            self._leading_since.pop(key, None)
            return False
        return now - self._leading_since.setdefault(key, now) < HAND_OVER_SECONDS

    def _in_vain(self, question: _Question) -> None:
        key = question.partition.key
        self._questions.pop(key, None)
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        asked_all = attempts % question.candidates == 0
        self._not_before[key] = self._loop.time() + (RETRY_SECONDS if asked_all else 0.0)

    # --- messages from other replicas

    def received(self, replica: Replica, broker: int, message: RangeWanted | RangeHeld) -> None:
        """Handles a request or an answer from a replica of the same partition on `broker`."""
        if isinstance(message, RangeWanted):
            self._answer(replica, broker, message)
            return
        question = self._questions.get(replica.key)
        role = replica.role
        if question is None or question.partition.replica is not replica or role is None:
            return
        asked = (question.broker, question.damage.start, role.leader_epoch)
        if (broker, message.start, message.leader_epoch) != asked:
            return
        if not message.data:
            self._in_vain(question)
            return
        del self._questions[replica.key]
        self._mending[replica.key] = self._loop.create_task(self._mend(question, message))

    def _answer(self, replica: Replica, broker: int, wanted: RangeWanted) -> None:
        nothing = RangeHeld(wanted.leader_epoch, wanted.start, b"")
        if not may_send_range(replica.role, wanted) or self._answers >= ANSWERS_MAX:
            self._send(replica, broker, nothing)
            return
        self._answers += 1
        reading = self._loop.run_in_executor(
            self._reads, replica.log.reader.read_stored, wanted.start, RANGE_BYTES_MAX, wanted.end
        )

        def read(done: asyncio.Future[Chunk | None]) -> None:
            self._answers -= 1
            error = None if done.cancelled() else done.exception()
            if error is not None:
                log.warning(
                    "a range that another replica asked for cannot be read",
                    partition=repr(replica),
                    error=str(error),
                )
            chunk = None if done.cancelled() or error is not None else done.result()
            if chunk is None or not may_send_range(replica.role, wanted):
                self._send(replica, broker, nothing)
            else:
                self._send(replica, broker, nothing._replace(data=b"".join(chunk.parts)))

        reading.add_done_callback(read)

    # --- repairing the segment

    async def _mend(self, question: _Question, held: RangeHeld) -> None:
        partition, damage = question.partition, question.damage
        try:
            await self._close_segment(partition, damage)
            end = await self._loop.run_in_executor(
                self._heals, partition.log.healer.heal, damage, held.data, held.leader_epoch
            )
        except StorageFailure as error:
            self._fail(error)
        except (OSError, TidelogError) as error:
            if not partition.removed:
                log.warning(
                    "a damaged range could not be healed; the broker tries again",
                    partition=repr(partition), start=damage.start, end=damage.end, broker=question.broker,
                    error=str(error),
                )  # fmt: skip
            self._in_vain(question)
        else:
            if end is None:
                self._in_vain(question)
            elif end == damage.end:
                self._healed()
                log.info(
                    "a damaged range is healed",
                    partition=repr(partition), start=damage.start, end=damage.end, broker=question.broker,
                )  # fmt: skip
        finally:
            del self._mending[partition.key]

    async def _close_segment(self, partition: Partition, damage: DamagedRange) -> None:
        """Closes and flushes the damaged segment: only closed, durable segments can be rewritten."""
        one = partition.log
        if damage.end > one.active.base_offset and not partition.removed:
            await self._rounds.exclusively(one.writer.roll)
            self._flushes.wrote(partition)
        if one.durable_offset < damage.end and not partition.removed:
            await self._flushes.flush([partition])
