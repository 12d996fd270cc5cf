"""Who changes the cluster's metadata, and tells the others (DESIGN section 6, M6).

`Controller` is what the rest of the broker sees. `SoloController` is the one of a broker
without a quorum: the only voter of its own metadata log, in term 1, so what is on its
disk is committed. A controller driven by Raft takes its place behind the same interface
and opens the same log.

Decisions are made on the image that the command will be applied to, the one after all
changes still on their way to the disk, so that two requests at once cannot both be right
about a name; answers wait until everything they rest on is durable.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import NamedTuple, Protocol

import structlog

from tidelog.errors import DiskFull, ResourceExhausted, Stopping, StorageFailed, Unavailable
from tidelog_broker.core.metadata import decide
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import Command, encode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import encode_image
from tidelog_broker.errors import StorageFailure
from tidelog_broker.model import Entry, EntryType, HardState
from tidelog_broker.runtime.solo_log import Replayed, format_solo, open_solo_log
from tidelog_broker.storage.data_directory import DataDirectory

__all__ = ["Change", "Controller", "SoloController", "format_solo", "open_solo_controller"]

log = structlog.get_logger(__name__)

SNAPSHOT_ENTRIES = 10_000
"""Entries after the last snapshot that call for the next; so many are replayed in well under a second."""

PENDING_MAX = 10_000
"""Changes on their way to the disk; over it they are refused (retriable)."""

PRODUCER_ID_BLOCK = 1000
"""Producer ids that a broker takes with one entry; those it has not given out are lost when it stops."""

Decision = Callable[[ClusterImage], Command | None]
"""What a request means for an image: pure (`core.metadata.decide`); None: it is so already."""

Watcher = Callable[[ClusterImage, ClusterImage], None]
"""Told on the event loop, with the image before and the image now; never slow, never raises."""


class Change(NamedTuple):
    """What became of a request."""

    image: ClusterImage
    """Right after it."""
    command: Command | None
    """None: what was asked for was so already."""


class Controller(Protocol):
    """The metadata of the cluster, as the rest of the broker uses it."""

    @property
    def image(self) -> ClusterImage:
        """The newest that is committed."""

    @property
    def leader(self) -> int | None:
        """The broker that is the controller; None: none is known."""

    @property
    def voters(self) -> tuple[int, ...]:
        """The brokers of the metadata quorum."""

    async def change(self, decision: Decision) -> Change:
        """Commits what `decision` makes of the image.

        What `decision` raises is raised here. Raises `DiskFull`, `ResourceExhausted`,
        `Stopping`, `Unavailable` (definite), `StorageFailed` (indefinite).
        """

    async def propose(self, commands: Sequence[Command]) -> ClusterImage:
        """Commits commands that need no decision; the image right after the last. Raises like `change`."""

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Has `watcher` told of every change from now on; returns what ends that."""

    async def allocate_producer_id(self) -> int:
        """An id that was never given out before (R8). Raises like `change`."""

    async def close(self) -> None:
        """Refuses what comes from now on, waits for what is on its way, closes the log."""


class _Pending(NamedTuple):
    entries: list[Entry]
    image: ClusterImage
    done: asyncio.Future[ClusterImage]


class SoloController:
    """The controller of a broker without a quorum. Of one event loop; file I/O in `threads`."""

    def __init__(
        self,
        directory: DataDirectory,
        replayed: Replayed,
        threads: Executor,
        *,
        fail: Callable[[BaseException], None],
        snapshot_entries: int = SNAPSHOT_ENTRIES,
        pending_max: int = PENDING_MAX,
    ) -> None:
        self._directory = directory
        self._log, self._image, self._configuration = replayed
        self._tip = self._image
        """The image after everything that is on its way."""
        self._threads = threads
        self._snapshot_entries = snapshot_entries
        self._snapshot_due = self._log.snapshot_index + snapshot_entries
        self._pending_max = pending_max
        self._pending: list[_Pending] = []
        self._writer: asyncio.Task[None] | None = None
        self._watchers: dict[object, Watcher] = {}
        self._producer_ids = range(0)
        self._producer_lock = asyncio.Lock()
        self._closed = False
        self._fail_broker = fail
        self._failure: StorageFailure | None = None

    def __repr__(self) -> str:
        return f"<SoloController {self._image!r} pending={len(self._pending)} {self._log!r}>"

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def leader(self) -> int | None:
        return self._directory.broker_id

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(voter.broker_id for voter in self._configuration.voters)

    async def change(self, decision: Decision) -> Change:
        self._accepting()
        try:
            command = decision(self._tip)
        except Exception:
            # The refusal may rest on a change that is not durable yet.
            await self._submit([])
            raise
        image = await self._submit([] if command is None else [command])
        return Change(image, command)

    async def propose(self, commands: Sequence[Command]) -> ClusterImage:
        self._accepting()
        return await self._submit(commands)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        key = object()
        self._watchers[key] = watcher

        def unwatch() -> None:
            self._watchers.pop(key, None)

        return unwatch

    async def allocate_producer_id(self) -> int:
        async with self._producer_lock:
            if not self._producer_ids:
                count, broker_id = PRODUCER_ID_BLOCK, self._directory.broker_id
                done = await self.change(lambda now: decide.allocate_producer_ids(now, broker_id, count))
                end = done.image.next_producer_id
                self._producer_ids = range(end - count, end)
            producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
            return producer_id

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self._in_thread(self._close_log)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _accepting(self) -> None:
        if self._failure is not None:
            raise StorageFailed(f"the broker is ending: {self._failure}")
        if self._closed:
            raise Stopping("the broker is stopping; ask again when it is back")
        if len(self._pending) >= self._pending_max:
            raise ResourceExhausted(
                f"{self._pending_max} metadata changes wait to be written; try again", retry_after_ms=100
            )

    def _submit(self, commands: Sequence[Command]) -> asyncio.Future[ClusterImage]:
        entries = []
        for command in commands:
            index = self._tip.version + 1
            entries.append(
                Entry(index, self._log.hard_state.term, EntryType.COMMAND, encode_command(command))
            )
            self._tip = apply(self._tip, command, index)
        pending = _Pending(entries, self._tip, asyncio.get_running_loop().create_future())
        if not entries and self._writer is None:
            pending.done.set_result(self._tip)
            return pending.done
        self._pending.append(pending)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="metadata log")
        # A caller that stops waiting does not stop the change.
        return asyncio.shield(pending.done)

    async def _write(self) -> None:
        """Group commit: everything that came while one write was on its way is the next one."""
        try:
            while self._pending:
                group, self._pending = self._pending, []
                await self._commit(group)
                if self._image.version >= self._snapshot_due and self._failure is None:
                    await self._take_snapshot()
        finally:
            self._writer = None

    async def _commit(self, group: Sequence[_Pending]) -> None:
        entries = [entry for pending in group for entry in pending.entries]
        try:
            if entries:
                await self._in_thread(lambda: self._append(entries))
        except OSError as error:
            # Nothing of the group was written, and what was decided after it rested on it.
            refused, self._pending = [*group, *self._pending], []
            self._tip = self._image
            _refuse(refused, _definite(error))
        except Exception as error:
            self._fail(error, group)
        else:
            self._publish(group)

    def _append(self, entries: Sequence[Entry]) -> None:
        self._log.append(entries)
        self._log.sync()
        self._directory.reserve.restore()

    def _publish(self, group: Sequence[_Pending]) -> None:
        before, self._image = self._image, group[-1].image
        if self._image is not before:
            for watcher in list(self._watchers.values()):
                try:
                    watcher(before, self._image)
                except Exception:
                    log.exception("a watcher of the metadata failed", watcher=repr(watcher))
        for pending in group:
            pending.done.set_result(pending.image)

    async def _take_snapshot(self) -> None:
        image = self._image
        try:
            await self._in_thread(lambda: self._save_snapshot(image))
        except OSError as error:
            log.warning("a metadata snapshot could not be written; the log is kept", error=str(error))
            self._snapshot_due = image.version + max(1, self._snapshot_entries // 10)
        except Exception as error:
            self._fail(error, ())
        else:
            self._snapshot_due = image.version + self._snapshot_entries

    def _save_snapshot(self, image: ClusterImage) -> None:
        self._log.save_snapshot(self._configuration, image.version, encode_image(image))

    def _fail(self, error: Exception, unanswered: Sequence[_Pending]) -> None:
        self._failure = error if isinstance(error, StorageFailure) else StorageFailure(repr(error))
        unanswered, self._pending = [*unanswered, *self._pending], []
        log.error("the metadata log failed; the broker must end", error=str(error))
        _refuse(unanswered, StorageFailed(f"the metadata log failed: {self._failure}"))
        self._fail_broker(self._failure)

    def _close_log(self) -> None:
        try:
            if self._failure is None:
                # The log may not end before this at the next start.
                state = self._log.hard_state
                with suppress(OSError):
                    self._log.save_hard_state(HardState(state.term, state.vote, self._log.durable_index))
        finally:
            self._log.close()


def open_solo_controller(
    directory: DataDirectory,
    threads: Executor,
    *,
    fail: Callable[[BaseException], None],
    snapshot_entries: int = SNAPSHOT_ENTRIES,
    pending_max: int = PENDING_MAX,
) -> SoloController:
    """The controller of a broker that is alone, with its log replayed. Blocking.

    `fail` is called on the event loop when the log's files fail: what is on disk is
    unknown, and the broker must end. Raises `DataDirectoryError` if the log is damaged, of
    a later version, or of a cluster with other voters.
    """
    return SoloController(
        directory,
        open_solo_log(directory),
        threads,
        fail=fail,
        snapshot_entries=snapshot_entries,
        pending_max=pending_max,
    )


def _refuse(refused: Sequence[_Pending], error: Exception) -> None:
    for pending in refused:
        pending.done.set_exception(error)
        pending.done.exception()  # it counts as seen, whether or not somebody still waits


def _definite(error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            "the broker's volume is full: nothing was changed; free some room", retry_after_ms=1000
        )
    return Unavailable(f"the metadata could not be written: {error.strerror or error}; nothing was changed")
