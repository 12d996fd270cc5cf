"""Bugs in the driver of the metadata log: messages before saves, applies before commits, ids given twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec.structs

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.membership.session import Session
from tidelog_broker.model import Entry, HardState, Snapshot
from tidelog_broker.quorum.driver import RaftDriver
from tidelog_broker.storage.files import whole_files
from tidelog_broker.storage.raft import log as raft_log
from tidelog_broker.storage.raft.log import RaftLog


@mutation("Raft, persist first", "votes")
def the_driver_speaks_before_it_has_saved() -> Iterator[None]:
    def early(self: RaftDriver) -> None:
        while self._saving is None and (ready := self.node.ready()) is not None:
            self._send(ready.messages)
            if ready.persist is not None and ready.persist.snapshot is None:
                self._send(self.node.advance(ready))
                self._saving = self._loop.create_task(late(self, ready.persist))
            elif ready.persist is not None:
                self._saving = self._loop.create_task(self._save(ready, ready.persist))
            self._hand_out(ready)
            if ready.persist is None:
                self._send(self.node.advance(ready))
        self._machine.changed()

    async def late(self: RaftDriver, persist: Any) -> None:
        try:
            await self._in_thread(lambda: self._write(persist))
        except Exception as error:
            self._fail(error)
        self._saving = None
        self._pump()

    with patched((RaftDriver, "_perform", early)):
        yield


@mutation("Raft 5.3", "votes")
def an_entry_is_committed_when_its_leader_has_it() -> Iterator[None]:
    def commit(self: Leader) -> Any:
        log = self._state.log
        if log.term(log.saved_index) == self._state.term:
            log.commit = max(log.commit, log.saved_index)
        return original(self)

    original = Leader._commit
    with patched((Leader, "_commit", commit)):
        yield


@mutation("Raft, persist first", "votes")
def entries_count_as_saved_before_their_sync() -> Iterator[None]:
    def hasty(self: RaftLog) -> None:
        self.durable_index = self.last_index

    with patched((RaftLog, "sync", hasty)):
        yield


@uncaught("Raft, persist first", "votes")
def hard_state_is_saved_before_the_entries_that_it_speaks_of() -> Iterator[None]:
    """Hardly ever harmful: hard state is saved when term or vote change. Its commit is above the old end of
    the log only if one message brought the term and entries that were committed before. Then the process must
    end between the two saves."""

    def reversed_order(
        self: RaftLog, snapshot: Snapshot | None, entries: Sequence[Entry], hard_state: HardState | None
    ) -> None:
        if hard_state is not None and snapshot is None:
            self.save_hard_state(hard_state)
            hard_state = None
        save(self, snapshot, entries, hard_state)

    save = RaftLog.save
    with patched((RaftLog, "save", reversed_order)):
        yield


@mutation("Raft, persist first", "votes")
def hard_state_is_not_flushed() -> Iterator[None]:
    def hasty(files: Any, path: str, data: bytes) -> None:
        file = files.open(f"{path}.tmp", create=True)
        whole_files.write_all(file, [data], 0)
        file.close()
        files.rename(f"{path}.tmp", path)

    with patched((raft_log, "replace_file", hasty)):
        yield


@mutation("Raft 7", "snapshots")
def a_snapshot_is_installed_without_its_flush() -> Iterator[None]:
    def hasty(files: Any, path: str, data: bytes) -> None:
        if "/install-" not in path:
            replace(files, path, data)
            return
        file = files.open(f"{path}.tmp", create=True)
        whole_files.write_all(file, [data], 0)
        file.close()
        files.rename(f"{path}.tmp", path)

    replace = whole_files.replace_file
    with patched((raft_log, "replace_file", hasty)):
        yield


@mutation("Raft 7", "snapshots")
def a_snapshot_does_not_take_the_image_along() -> Iterator[None]:
    def forgetful(self: RaftDriver, snapshot: Snapshot) -> None:
        with patched((type(self._machine), "restore", lambda self, snapshot: None)):
            restore(self, snapshot)

    restore = RaftDriver._restore
    with patched((RaftDriver, "_restore", forgetful)):
        yield


@mutation("R8")
def producer_ids_are_given_out_before_that_is_committed() -> Iterator[None]:
    """Another controller, or the same one later, gives out the same ids."""
    from tidelog_broker.membership.wire import AllocateBlock, Block
    from tidelog_broker.quorum.request_handler import RequestHandler

    async def hasty(self: RequestHandler, active: Any, request: Any) -> Any:
        if isinstance(request, AllocateBlock):
            return Block(self._committed.now.next_producer_id, request.count)
        return await do(self, active, request)

    do = RequestHandler._do
    with patched((RequestHandler, "_do", hasty)):
        yield


@mutation("R8")
def a_producer_id_is_given_to_two() -> Iterator[None]:
    from tidelog_broker.quorum.producer_id_blocks import ProducerIdBlocks

    async def again(self: ProducerIdBlocks) -> int:
        number = await allocate(self)
        if number % 2:
            self._ids = range(number, self._ids.stop)
        return number

    allocate = ProducerIdBlocks.allocate
    with patched((ProducerIdBlocks, "allocate", again)):
        yield


@mutation("M3", "cut off")
def a_session_outlives_its_deadline() -> Iterator[None]:
    with patched((Session, "session_good", lambda self: self._good_until > 0)):
        yield


@uncaught("M3", "cut off")
def the_controller_ignores_that_heartbeats_are_unanswered() -> Iterator[None]:
    """It costs time, not records: a partition keeps a leader that cannot learn that it was replaced.

    Out of reach here: a connection that works in one direction only is closed within a second, so that hardly
    any of these heartbeats arrives. `tests/quorum/test_quorum.py` plants a broker that gets no answers.
    """
    from tidelog_broker.quorum.request_handler import RequestHandler

    async def heard(self: RequestHandler, active: Any, beat: Any) -> Any:
        return await hear(self, active, msgspec.structs.replace(beat, unanswered=False))

    hear = RequestHandler._heard
    with patched((RequestHandler, "_heard", heard)):
        yield


@uncaught("R7", "cut off")
def a_leader_without_a_controller_takes_appends() -> Iterator[None]:
    """It costs time, not records: clients wait until their deadline instead of trying another broker (R7)."""
    from tidelog_broker.replication.replica import Replica

    with patched((Replica, "in_doubt", property(lambda self: False))):
        yield
