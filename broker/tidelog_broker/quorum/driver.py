"""Performs Raft for the metadata log of a broker: time, disk, messages, snapshots (M6).

`core.raft` has the rules and `storage.raft.log` the files; here they meet an event loop and one thread. The
`machine` gives the entries a meaning.

The driver sends the messages of a `Ready` at once, writes its entries and state in the thread, and then
sends the messages that rest on the write. Everything that is proposed while the thread writes is written
together next: group commit.

If the disk refuses a write (it is full), nothing stays undecided for the only voter: no other broker can
have the entries, so its node begins again from the disk, as after a crash, and the proposals are refused.
With other voters the entries may still be committed: the driver repeats the write, and the others replace a
leader that is silent meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from tidelog_broker.core.raft.errors import LogForgotten
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.ready import Persist, Ready
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.errors import StorageFailure
from tidelog_broker.model import Configuration, EntryType, HardState, Snapshot, Voter
from tidelog_broker.quorum.configuration_history import ConfigurationHistory
from tidelog_broker.quorum.machine import Machine
from tidelog_broker.quorum.reads import WaitingReads
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.raft.log import RaftLog

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 0.02
"""`tick`: of Raft and of the controller's clocks."""

TICK_SECONDS_ALONE: Final = 0.5
"""The tick of a broker that is alone: no other can be elected, and an idle broker must cost nothing."""

SNAPSHOT_ENTRIES: Final = 10_000
"""So many entries after the last snapshot the next one is taken; they are replayed in well under 1 s."""

RETRY_SECONDS: Final = 0.1
"""Between two attempts of a write that the disk refused."""

T = TypeVar("T")


class RaftDriver:
    """The Raft node of a broker. Belongs to one event loop; `threads` is one thread, which writes the log."""

    def __init__(
        self,
        me: Voter,
        raft_log: RaftLog,
        threads: Executor,
        machine: Machine,
        send: Callable[[Message], None],
        *,
        reserve: Reserve,
        rng: random.Random,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
    ) -> None:
        """`send` sends a message to the broker that it names; the message may be lost."""
        self._loop = asyncio.get_running_loop()
        self._me = me
        self.log = raft_log
        self._threads = threads
        self._machine = machine
        self._send_one = send
        self._reserve = reserve
        self._rng = rng
        self._configurations = ConfigurationHistory(raft_log.configurations)
        self.node = self._new_node()
        self.applied = self.node.applied
        """The last entry that the machine has."""
        self._snapshot_entries = snapshot_entries
        self._snapshot_due = raft_log.snapshot_index + snapshot_entries
        self._saving: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._pump_due = False
        self._pumping = False
        self._next_tick = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reads = WaitingReads()
        self.refusal: OSError | None = None
        """Why the disk refuses the write that is repeated; None: no write is repeated."""
        self._failure: StorageFailure | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<RaftDriver {self.node!r} applied={self.applied}>"

    def start(self) -> None:
        """Starts the ticks. A broker that needs no other vote is elected at once."""
        self._next_tick = self._loop.time() + TICK_SECONDS
        self._timer = self._loop.call_at(self._next_tick, self._tick)
        self._campaign_alone()
        self.wake()

    async def close(self) -> None:
        """Ends the ticks, waits for the disk, and saves which entries are known to be committed."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._saving, self._snapshotting):
            if task is not None:
                await asyncio.wait([task])
        self._reads.end()
        await self._in_thread(self._close_log)

    # --- events

    def step(self, message: Message) -> None:
        if self._closed or self._failure is not None:
            return
        try:
            self.node.step(message)
        except Exception as error:
            self._fail(error)
        self.wake()

    def refused(self, broker: int) -> None:
        """The machine of a broker refused a connection."""
        for voter in self._members(broker):
            self.node.refused(voter)
        self.wake()

    def disconnected(self, broker: int) -> None:
        """The connection to a broker broke."""
        for voter in self._members(broker):
            self.node.disconnected(voter)
        self.wake()

    def wake(self) -> None:
        """Performs what the node wants at the loop's next turn; whatever comes until then shares a write."""
        if not self._pump_due and not self._closed:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    # --- requests

    def propose(self, commands: Sequence[bytes]) -> int:
        """As `RaftNode.propose`."""
        index = self.node.propose(commands)
        self.wake()
        return index

    def configure(self, configuration: Configuration) -> int:
        """As `RaftNode.configure`."""
        index = self.node.configure(configuration)
        self.wake()
        return index

    async def read(self) -> None:
        """Returns when everything is applied that was committed when this was called (ReadIndex).

        Raises `core.raft.errors.NotRaftLeader`, `Busy`, or ConnectionError if the leadership ends first.
        """
        token = self._reads.next_token()
        self.node.read(token)
        self.wake()
        await self._reads.wait(token)

    # --- performing

    def _tick(self) -> None:
        now = self._loop.time()
        seconds = TICK_SECONDS_ALONE if self._is_alone() else TICK_SECONDS
        self._next_tick += seconds
        if self._next_tick <= now:
            # A loop that stalled gives one tick, not many: it did not listen, so no broker counts as silent.
            self._next_tick = now + seconds
        self._timer = self._loop.call_at(self._next_tick, self._tick)
        try:
            self.node.tick()
            self._pump()
            if self._failure is None:
                self._machine.ticked()
        except Exception as error:
            self._fail(error)

    def _is_alone(self) -> bool:
        configuration = self.node.configuration
        return self.node.leads and len(configuration.voters) == 1 and not configuration.learners

    def _pump(self) -> None:
        """Performs what the node wants, until it has to wait for the disk."""
        self._pump_due = False
        if self._closed or self._failure is not None or self._pumping:
            return
        self._pumping = True
        try:
            self._perform()
        except Exception as error:
            self._fail(error)
        finally:
            self._pumping = False

    def _perform(self) -> None:
        while self._saving is None and (ready := self.node.ready()) is not None:
            self._send(ready.messages)
            if ready.persist is not None:
                self._saving = asyncio.create_task(self._save(ready, ready.persist), name="metadata log")
            # Committed entries may be applied while the disk writes.
            self._hand_out(ready)
            if ready.persist is None:
                self._send(self.node.advance(ready))
        self._machine.changed()
        if self.applied >= self._snapshot_due and self._snapshotting is None:
            self._snapshotting = asyncio.create_task(self._take_snapshot(), name="metadata snapshot")

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._send_one(message)

    def _hand_out(self, ready: Ready) -> None:
        if ready.committed:
            assert ready.committed[0].index == self.applied + 1, (ready.committed[0].index, self)
            self.applied = ready.committed[-1].index
            for entry in ready.committed:
                if entry.type is EntryType.CONFIGURATION:
                    self._configurations.committed(entry.index, Configuration.decode(entry.payload))
            self._machine.apply(ready.committed)
        self._reads.answered(ready.reads, ready.failed_reads, self.applied)

    # --- the disk

    async def _save(self, ready: Ready, persist: Persist) -> None:
        while True:
            try:
                await self._in_thread(lambda: self._write(persist))
            except OSError as error:
                if self._withdraw(error):
                    return
                self.refusal = error
                self._machine.changed()
                log.warning("the metadata log could not be written; the write is repeated", error=str(error))
                if self._closed:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:
                self._saving = None
                self._fail(error)
                return
            else:
                break
        self.refusal = None
        self._saving = None
        try:
            if persist.snapshot is not None:
                self._restore(persist.snapshot)
            self._send(self.node.advance(ready))
        except Exception as error:
            self._fail(error)
        self._pump()

    def _write(self, persist: Persist) -> None:
        self.log.save(*persist)
        self._reserve.restore()

    def _withdraw(self, error: OSError) -> bool:
        """Withdraws what the only voter proposed and could not write; returns whether that was possible."""
        node = self.node
        alone = node.leads and node.configuration.voters == (self._me,)
        if not alone or self.applied != node.log.saved_index or self._closed:
            return False
        self._saving = None
        self._reads.end()
        self.node = self._new_node()
        # The machine has applied these entries already; the commit index in the log lags behind.
        self.node.applied = self.applied
        self._machine.withdrawn(self.log.last_index, error)
        self._campaign_alone()
        self.wake()
        return True

    def _new_node(self) -> RaftNode:
        return RaftNode(
            self._me,
            self.log,
            self.log.hard_state,
            self._configurations.up_to(self.log.last_index),
            times=RaftTimes(),
            rng=self._rng,
        )

    def _campaign_alone(self) -> None:
        if self.node.configuration.voters == (self._me,):
            self.node.campaign()

    def _restore(self, snapshot: Snapshot) -> None:
        self.applied = snapshot.index
        self._configurations.restored(snapshot.index, snapshot.configuration)
        self._snapshot_due = snapshot.index + self._snapshot_entries
        self._machine.restore(snapshot)

    async def _take_snapshot(self) -> None:
        index, configuration = self.applied, self.node.configuration_at(self.applied)
        encode = self._machine.encoder()
        try:
            taken = await self._in_thread(lambda: self._save_snapshot(index, configuration, encode))
        except OSError as error:
            log.warning("a metadata snapshot could not be written; the log stays as it is", error=str(error))
            self._snapshot_due = index + max(1, self._snapshot_entries // 10)
        except Exception as error:
            self._fail(error)
        else:
            self._snapshot_due = max(self._snapshot_due, index + self._snapshot_entries)
            if taken:
                self.node.compacted(index)
                self._configurations.compacted(index, configuration)
        finally:
            self._snapshotting = None

    def _save_snapshot(self, index: int, configuration: Configuration, encode: Callable[[], bytes]) -> bool:
        """Runs in the thread, where no other write runs. False: a leader's snapshot came first."""
        if self.log.snapshot_index >= index or self.log.term(index) is None:
            return False
        self.log.save_snapshot(configuration, index, encode())
        return True

    def _close_log(self) -> None:
        try:
            if self._failure is None:
                # At the next start the log must reach at least this far.
                state = self.log.hard_state
                commit = max(state.commit, min(self.node.log.commit, self.log.durable_index))
                with suppress(OSError, StorageFailure):
                    self.log.save_hard_state(HardState(state.term, state.vote, commit))
        finally:
            self.log.close()

    def _fail(self, error: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = error if isinstance(error, StorageFailure) else StorageFailure(repr(error))
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(error, LogForgotten):
            self._reads.end()
            self._machine.forgotten(str(error))
            return
        log.error("the metadata log failed; the broker must stop", error=str(error), exc_info=error)
        self._reads.end()
        self._machine.failed(self._failure)

    def _members(self, broker: int) -> list[Voter]:
        configuration = self.node.configuration
        return [
            voter for voter in (*configuration.voters, *configuration.learners) if voter.broker_id == broker
        ]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._threads, work)
