"""Performs the metadata log's Raft in a broker: time, disk, messages, snapshots (M6).

The rules are `core.raft`'s, the files `storage.raft.log`'s; here they meet an event loop and
one thread. What the entries mean is the `Machine`'s business: `quorum_controller`.

What a ready says goes out at once, what it wants kept is written in the thread, and only
then is said what rests on it. Everything that is proposed while the thread writes is the
next write: group commit.

A disk that refuses a write (it is full) makes nothing undecided for the only voter: nobody
else can have the entries, so its node begins again from the disk, as after a crash, and who
proposed them is refused. With other voters they may be committed yet: the write is tried
again, and a leader that is silent meanwhile is replaced.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import structlog

from tidelog_broker.core.raft.errors import LogForgotten
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.ready import Persist, Ready
from tidelog_broker.core.raft.times import RaftTimes
from tidelog_broker.errors import StorageFailure
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Snapshot, Voter
from tidelog_broker.quorum.reads import WaitingReads
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.raft.log import RaftLog

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 0.02
"""`tick`: of Raft and of the controller's clocks."""

TICK_SECONDS_ALONE: Final = 0.5
"""Of a broker that is alone: nobody elects another, and an idle broker is to cost nothing."""

SNAPSHOT_ENTRIES: Final = 10_000
"""Entries after the last snapshot that call for the next; so many are replayed in well under a second."""

RETRY_SECONDS: Final = 0.1
"""Between two tries of a write that the disk refused."""

T = TypeVar("T")


class Machine(Protocol):
    """What committed entries are applied to. All of it on the event loop; nothing blocks."""

    def apply(self, entries: Sequence[Entry]) -> None:
        """In order, each once."""

    def restore(self, snapshot: Snapshot) -> None:
        """A leader's image takes the place of everything that was applied."""

    def encoder(self) -> Callable[[], bytes]:
        """Encodes what is applied now; called in the thread."""

    def ticked(self) -> None:
        """A tick has passed."""

    def changed(self) -> None:
        """Role, term, leader, voters or what is applied may be others now."""

    def withdrawn(self, saved_index: int, error: OSError) -> None:
        """The entries behind `saved_index` are nowhere, and never will be."""

    def failed(self, error: StorageFailure) -> None:
        """Nothing is known of the disk any more; the broker has to end."""

    def forgotten(self, reason: str) -> None:
        """The log lacks what it acknowledged; the broker has to end."""


class RaftDriver:
    """See the module. Of one event loop; `threads` has one thread, which alone writes the log."""

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
        times: RaftTimes | None = None,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
    ) -> None:
        """`send`: to the broker that the message names; it may be lost."""
        self._loop = asyncio.get_running_loop()
        self._me = me
        self.log = raft_log
        self._threads = threads
        self._machine = machine
        self._send_one = send
        self._reserve = reserve
        self._rng = rng
        self._times = times or RaftTimes()
        self._configurations: list[tuple[int, Configuration]] = list(raft_log.configurations)
        """On disk: who votes, and from which entry on."""
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
        """What the disk says to a write that is tried again; None: no such write waits."""
        self._failure: StorageFailure | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<RaftDriver {self.node!r} applied={self.applied}>"

    def start(self) -> None:
        """Time begins; one who needs nobody else's vote is elected at once."""
        self._next_tick = self._loop.time() + TICK_SECONDS
        self._timer = self._loop.call_at(self._next_tick, self._tick)
        self._campaign_alone()
        self.wake()

    async def close(self) -> None:
        """Ends time, waits for the disk, and keeps what is known to be committed."""
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

    # --- what happens

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
        """The stream to a broker broke."""
        for voter in self._members(broker):
            self.node.disconnected(voter)
        self.wake()

    def wake(self) -> None:
        """Has the node's wishes performed at the loop's next turn: what comes until then shares a write."""
        if not self._pump_due and not self._closed:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    # --- what is asked of it

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
        """Returns when everything is applied that was committed when it was asked (ReadIndex).

        Raises `core.raft.errors.NotLeader`, `Busy`, or ConnectionError if leadership ended meanwhile.
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
            # A loop that stalled gives one tick, not many: nobody was silent while it did not listen.
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
        """Performs what the node wants, until it waits for the disk."""
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
            # What is committed may be applied while the disk writes.
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
                    self._configured(entry.index, Configuration.decode(entry.payload))
            self._machine.apply(ready.committed)
        self._reads.answered(ready.reads, ready.failed_reads, self.applied)

    def _configured(self, index: int, configuration: Configuration) -> None:
        # What stood at the index or behind it when the log was opened may be another leader's.
        before = [one for one in self._configurations if one[0] < index]
        self._configurations = [*before, (index, configuration)]

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
                log.warning("the metadata log could not be written; it is tried again", error=str(error))
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
        """Takes back what the only voter has proposed and could not write; whether that was possible."""
        node = self.node
        alone = node.leads and node.configuration.voters == (self._me,)
        if not alone or self.applied != node.log.saved_index or self._closed:
            return False
        self._saving = None
        self._reads.end()
        self.node = self._new_node()
        # The machine has these, and the log's own count of what is committed lags behind.
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
            [one for one in self._configurations if one[0] <= self.log.last_index],
            times=self._times,
            rng=self._rng,
        )

    def _campaign_alone(self) -> None:
        if self.node.configuration.voters == (self._me,):
            self.node.campaign()

    def _restore(self, snapshot: Snapshot) -> None:
        self.applied = snapshot.index
        self._configurations = [(snapshot.index, snapshot.configuration)]
        self._snapshot_due = snapshot.index + self._snapshot_entries
        self._machine.restore(snapshot)

    async def _take_snapshot(self) -> None:
        index, configuration = self.applied, self.node.configuration_at(self.applied)
        encode = self._machine.encoder()
        try:
            taken = await self._in_thread(lambda: self._save_snapshot(index, configuration, encode))
        except OSError as error:
            log.warning("a metadata snapshot could not be written; the log is kept", error=str(error))
            self._snapshot_due = index + max(1, self._snapshot_entries // 10)
        except Exception as error:
            self._fail(error)
        else:
            self._snapshot_due = max(self._snapshot_due, index + self._snapshot_entries)
            if taken:
                self.node.compacted(index)
                later = [one for one in self._configurations if one[0] > index]
                self._configurations = [(index, configuration), *later]
        finally:
            self._snapshotting = None

    def _save_snapshot(self, index: int, configuration: Configuration, encode: Callable[[], bytes]) -> bool:
        """In the thread, where nothing is written meanwhile. False: a leader's image was faster."""
        if self.log.snapshot_index >= index or self.log.term(index) is None:
            return False
        self.log.save_snapshot(configuration, index, encode())
        return True

    def _close_log(self) -> None:
        try:
            if self._failure is None:
                # The log may not end before this at the next start.
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
        log.error("the metadata log failed; the broker must end", error=str(error), exc_info=error)
        self._reads.end()
        self._machine.failed(self._failure)

    def _members(self, broker: int) -> list[Voter]:
        configuration = self.node.configuration
        return [
            voter for voter in (*configuration.voters, *configuration.learners) if voter.broker_id == broker
        ]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._threads, work)
