"""Keeps the partitions of this broker as the image says: opens, creates, configures and removes them.

Images are applied in order, each completely before the next, so that the old and the new state of a stream
that is deleted and created again never mix. Neighbours: `controller` reports new images, `hosted_partitions`
has the partitions, `write_rounds` and `flush_rounds` end the writes and flushes of a partition before its
files are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from tidelog.errors import Stopping, TidelogError
from tidelog_broker.core.metadata.commands import ReplicaName, Suspect
from tidelog_broker.core.metadata.delta import delta_between
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.hosting.hosted_partitions import HostedPartitions, placed_on
from tidelog_broker.hosting.threads import CREATIONS_MAX, Threads
from tidelog_broker.quorum.controller import Controller
from tidelog_broker.storage.directory.opening import Opened, Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.upkeep.suspects import Suspects, mark_page_cache, mark_unflushed
from tidelog_broker.writing.flush_rounds import Fail, FlushRounds
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.partition_host import PartitionHost
from tidelog_broker.writing.write_rounds import WriteRounds

log = structlog.get_logger(__name__)


class _Change(NamedTuple):
    """A new image."""

    before: ClusterImage
    after: ClusterImage


class _Contradiction(NamedTuple):
    """A log that must be set aside, because it contradicts the leader's log (R1)."""

    partition: Partition
    reason: str


class _Halted(NamedTuple):
    """A partition that failed in this run. Its log is closed, and its files stay in place."""

    partition: Partition
    reason: str


class ImageFollower:
    """Applies images to the partitions of one broker, one after the other. Runs on one event loop."""

    def __init__(
        self,
        broker_id: int,
        controller: Controller,
        hosted: HostedPartitions,
        host: PartitionHost[Partition],
        store: LogStore,
        rounds: WriteRounds,
        flushes: FlushRounds,
        threads: Threads,
        fail: Fail,
        deleted: Callable[[str | None], None],
        lost: Callable[[Partition, str], None],
    ) -> None:
        """`deleted` is called with each folder that will be removed later. `lost` is called, on the event
        loop, for each log that was set aside and each failed partition that another broker can lead."""
        self._loop = asyncio.get_running_loop()
        self._broker_id = broker_id
        self._controller = controller
        self._hosted = hosted
        self._store = store
        self._rounds = rounds
        self._flushes = flushes
        self._threads = threads
        self._fail = fail
        self._deleted = deleted
        self._lost = lost
        self._host = host
        self._opened: dict[tuple[bytes, int], PartitionLog] = {}
        """Opened logs that wait for `start`."""
        self._opened_by = ClusterImage()
        """The image that decided which logs were opened."""
        self._suspects = Suspects()
        self._work: asyncio.Queue[_Change | _Contradiction | _Halted] = asyncio.Queue()
        """Changes that are not applied yet, in order."""
        self._task: asyncio.Task[None] | None = None
        self._applied = 0
        """Version of the image that the partitions here follow."""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<ImageFollower applied={self._applied} waiting={self._work.qsize()}>"

    # --- at a start and at a stop

    async def open_logs(self, *, same_boot: bool) -> None:
        """Opens the log of every partition that the image places here.

        Then all records are on disk, and so are the marks of logs that may lack acknowledged records (R6).
        """
        image = self._controller.image
        wanted = [want for stream in image.streams.values() for want in placed_on(self._broker_id, stream)]

        def open_all() -> Opened:
            found = self._store.opener.open_all(
                wanted, same_boot=same_boot, threads=self._threads.flush_files
            )
            if not same_boot:
                mark_unflushed(image, found.logs)
            mark_page_cache(image, found.logs)
            return found

        opened = await self._loop.run_in_executor(self._threads.housekeeping, open_all)
        self._hosted.strays += opened.strays
        for path in opened.strays:
            log.warning("a folder belongs to no partition of this broker; the folder is kept", folder=path)
        for lost in opened.lost:
            key = (lost.wanted.stream_id, lost.wanted.partition)
            self._hosted.lose(key, lost.wanted.assignment, lost.reason, kept=lost.stray)
            log.error(
                "a partition has no usable log", stream=lost.wanted.name, partition=lost.wanted.partition,
                reason=lost.reason,
            )  # fmt: skip
        for key, path in opened.left.items():
            self._deleted(path)
            placed = image.partition(*key)
            if placed is not None and self._broker_id in (*placed.isr, *placed.eligible):
                # The cluster counts on data that an earlier run had: this directory is older than that data.
                self._hosted.lose(
                    key, placed.assignment_of(self._broker_id), "its folder is of an earlier assignment"
                )
        self._opened, self._opened_by = opened.logs, image

    def suspects(self) -> tuple[Suspect, ...]:
        """For the registration: replicas that may lack records that they acknowledged (R6).

        Called between `open_logs` and `start`. Their marks are removed once the image shows this run.
        """
        return self._suspects.tell(self._opened)

    def lost_replicas(self) -> tuple[ReplicaName, ...]:
        """For the registration: replicas without a usable log (2c)."""
        return tuple(
            ReplicaName(*key, self._hosted.lost_assignment(key))
            for key in sorted(self._hosted.lost)
            if key not in self._hosted.uncreated
        )

    def start(self) -> None:
        """Begins to serve the opened partitions, and applies the current image and all later images."""
        then, now = self._opened_by, self._controller.image
        for (stream_id, number), one in self._opened.items():
            self._add(then, then.streams[stream_id], number, one)
        self._opened, self._opened_by = {}, ClusterImage()
        self._applied = then.version
        self._controller.watch(lambda old, new: self._work.put_nowait(_Change(old, new)))
        # First the changes since the logs were opened, then the partitions that were lost before.
        self._work.put_nowait(_Change(then, now))
        self._work.put_nowait(_Change(ClusterImage(), now))
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def give_up(self, answer: TidelogError) -> None:
        """No further image will be applied: calls that wait for one get `answer`."""
        waiters, self._waiters = self._waiters, []
        for _, turn in waiters:
            if not turn.done():
                turn.set_exception(answer)

    # --- following

    async def applied(self, version: int) -> None:
        """Waits until the partitions here are as the image of `version` says."""
        if version > self._applied:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((version, turn))
            await turn
        await self._hosted.listeners_settled()

    def retry_uncreated(self) -> None:
        """Tries again to create partitions that could not be created."""
        if self._hosted.uncreated:
            image = self._controller.image
            self._work.put_nowait(_Change(image, image))

    def set_aside(self, partition: Partition, reason: str) -> None:
        """Ends the service of a partition and sets its log aside, which contradicts the leader's log (R1)."""
        self._hosted.set_aside(partition, reason)
        self._work.put_nowait(_Contradiction(partition, reason))

    def halt(self, partition: Partition, reason: str) -> None:
        """Ends the service of a partition in this run after an unexpected failure."""
        self._hosted.halt(partition, reason)
        self._work.put_nowait(_Halted(partition, reason))

    async def _follow(self) -> None:
        while True:
            work = await self._work.get()
            try:
                if isinstance(work, _Contradiction):
                    await self._quarantine(work.partition, work.reason)
                    continue
                if isinstance(work, _Halted):
                    await self._let_go(work.partition, work.reason)
                    continue
                await self._apply(work.before, work.after)
            except Stopping:
                return
            except Exception as error:
                self._fail(error)
                return
            new = work.after
            self._applied = new.version
            for version, turn in self._waiters:
                if version <= new.version and not turn.done():
                    turn.set_result(None)
            self._waiters = [entry for entry in self._waiters if not entry[1].done()]

    async def _unmark_suspects(self, image: ClusterImage) -> None:
        """Removes the marks of suspect logs, which the image now has until they are in sync again (R6)."""
        mine = image.brokers.get(self._broker_id)
        if mine is None or not self._host.is_this_run(mine.incarnation):
            return
        for one in self._suspects.take_told():
            log.warning(
                "a log may lack acknowledged records; another replica leads, or this one in an unclean epoch",
                folder=one.folder, start_offset=one.start_offset, end_offset=one.end_offset,
            )  # fmt: skip
            try:
                await self._loop.run_in_executor(self._threads.housekeeping, one.clear_suspect)
            except OSError as error:
                # The next start reports the log again, which costs only a catch-up.
                log.warning(
                    "the mark of a suspect log could not be removed", folder=one.folder, error=str(error)
                )

    async def _apply(self, old: ClusterImage, new: ClusterImage) -> None:
        await self._unmark_suspects(new)
        hosted = self._hosted
        delta = delta_between(old, new)
        for stream in delta.deleted:
            await self._remove(stream)
        changed = {stream.id: stream for stream in delta.streams}
        for partition in list(hosted.served.values()):
            now = changed.get(partition.stream_id)
            if now is not None and not self._is_placed(partition, now):
                # A new assignment of the partition to this broker begins with an empty log, below (R16).
                await self._leave(partition)
            elif now is not None:
                hosted.configure(new, partition, now)
            elif delta.brokers and partition.stream_id in new.streams:
                # The image says which brokers may join an ISR, and which run of each it means (R4, R10).
                partition.replica.imaged(new, new.streams[partition.stream_id])
        for stream in changed.values():
            hosted.forget_lost_elsewhere(stream)
        again = {key[0]: new.streams[key[0]] for key in hosted.uncreated if key[0] in new.streams}
        await self._create(new, {**again, **changed}.values())

    def _is_placed(self, partition: Partition, stream: StreamImage) -> bool:
        """Whether the image still places this replica here; False if one image removes and adds it (R16)."""
        placed = stream.partitions[partition.partition]
        return (
            self._broker_id in placed.replicas
            and placed.assignment_of(self._broker_id) == partition.log.assignment
        )

    def _add(self, image: ClusterImage, stream: StreamImage, number: int, one: PartitionLog) -> None:
        saved = self._store.checkpoints.high_watermark((stream.id, number))
        self._hosted.add(image, stream, number, one, self._host, saved)

    async def _create(self, image: ClusterImage, streams: Iterable[StreamImage]) -> None:
        """Creates the partitions of `streams` that do not exist yet, several at a time."""
        new = [
            (stream, want)
            for stream in streams
            for want in placed_on(self._broker_id, stream)
            if self._hosted.is_missing(want, stream.partitions[want.partition])
        ]
        for start in range(0, len(new), CREATIONS_MAX):
            part = new[start : start + CREATIONS_MAX]
            made = await asyncio.gather(*(self._make(want) for _, want in part), return_exceptions=True)
            for (stream, want), one in zip(part, made, strict=True):
                if isinstance(one, OSError):
                    self._hosted.not_made(want, one)
                elif isinstance(one, BaseException):
                    raise one
                else:
                    self._add(image, stream, want.partition, one)

    def _make(self, want: Wanted) -> asyncio.Future[PartitionLog]:
        return self._loop.run_in_executor(self._threads.creation, self._store.opener.create, want)

    async def _remove(self, stream: StreamImage) -> None:
        gone = self._hosted.remove(stream)

        def remove() -> str | None:
            return self._store.delete_stream(stream.name, stream.id, [partition.log for partition in gone])

        await self._leave_alone(gone)
        try:
            path = await self._rounds.exclusively(remove)
        except OSError as error:
            log.error(
                "a deleted stream's folder could not be set aside", stream=stream.name, error=str(error)
            )
        else:
            self._deleted(path)

    async def _leave(self, partition: Partition) -> None:
        """Removes a replica that the image no longer places here; its files are deleted later (M5)."""
        self._hosted.leave(partition)
        await self._leave_alone([partition])
        try:
            path = await self._rounds.exclusively(lambda: self._store.remove_replica(partition.log))
        except OSError as error:
            log.error(
                "the folder of a replica that left could not be set aside",
                partition=repr(partition), error=str(error),
            )  # fmt: skip
        else:
            log.info("a replica was moved away from this broker", partition=repr(partition))
            self._deleted(path)

    async def _quarantine(self, partition: Partition, reason: str) -> None:
        await self._leave_alone([partition])
        try:
            await self._rounds.exclusively(lambda: self._store.quarantine(partition.log, reason))
        except OSError as error:
            log.error("a log could not be set aside", partition=repr(partition), error=str(error))
        self._lost(partition, reason)

    async def _let_go(self, partition: Partition, reason: str) -> None:
        await self._leave_alone([partition])
        await self._rounds.exclusively(partition.log.close)
        placed = self._controller.image.partition(*partition.key)
        if placed is not None and any(member != self._broker_id for member in placed.isr):
            # Another broker can lead. The only member of an ISR stays a member: its records are on this
            # disk, and no other broker is known to have them.
            self._lost(partition, reason)

    async def _leave_alone(self, gone: list[Partition]) -> None:
        """Waits until no write and no flush uses the files of these partitions."""
        # A running write round may still ask for a flush.
        await self._rounds.drained_of(gone)
        await self._flushes.forget(gone)
