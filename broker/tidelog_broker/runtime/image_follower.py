"""Keeps the partitions of this broker as the image says: opens, makes, configures and removes them.

One image after the other is applied, each in full before the next, so that a stream that
is deleted and made again is never both. Neighbours: `controller` tells of new images,
`hosted_partitions` is what is kept, `rounds` keeps writes and flushes off what goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.delta import delta_between
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.runtime.controller import Controller
from tidelog_broker.runtime.hosted_partitions import HostedPartitions, placed_on
from tidelog_broker.runtime.rounds import Fail, FlushRounds, WriteRounds
from tidelog_broker.runtime.threads import CREATIONS_MAX, Threads
from tidelog_broker.storage.log import PartitionLog
from tidelog_broker.storage.store import LogStore, Wanted

log = structlog.get_logger(__name__)


class ImageFollower:
    """See the module. Of one event loop."""

    def __init__(
        self,
        broker_id: int,
        controller: Controller,
        hosted: HostedPartitions,
        store: LogStore,
        rounds: WriteRounds,
        flushes: FlushRounds,
        threads: Threads,
        fail: Fail,
        deleted: Callable[[str | None], None],
    ) -> None:
        """`deleted` is told of each deleted stream's folder, which is to be removed one day."""
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
        self._opened: dict[tuple[bytes, int], PartitionLog] = {}
        """Logs that wait for `start`."""
        self._images: asyncio.Queue[tuple[ClusterImage, ClusterImage]] = asyncio.Queue()
        """The image before and the image after each change that is not applied yet."""
        self._task: asyncio.Task[None] | None = None
        self._applied = 0
        """Version of the image that the partitions here follow."""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<ImageFollower applied={self._applied} waiting={self._images.qsize()}>"

    # --- at a start and at a stop

    async def open_logs(self, *, same_boot: bool) -> None:
        """Opens the log of every partition that the image places here; everything read is then on disk."""
        image = self._controller.image
        wanted = [want for stream in image.streams.values() for want in placed_on(self._broker_id, stream)]
        threads = self._threads
        opened = await self._loop.run_in_executor(
            threads.housekeeping,
            lambda: self._store.open_all(wanted, same_boot=same_boot, threads=threads.flush_files),
        )
        self._hosted.strays += opened.strays
        for path in opened.strays:
            log.warning("a folder belongs to no partition of this broker; it is kept", folder=path)
        for lost in opened.lost:
            self._hosted.lost[lost.wanted.stream_id, lost.wanted.partition] = lost.reason
            log.error(
                "a partition has no usable log", stream=lost.wanted.name, partition=lost.wanted.partition,
                reason=lost.reason,
            )  # fmt: skip
        self._opened = opened.logs

    def start(self) -> None:
        """Begins to serve what was opened, as the image of now says, and follows it from here on."""
        image = self._controller.image
        for (stream_id, number), one in self._opened.items():
            self._hosted.add(image.streams[stream_id], number, one)
        self._opened = {}
        self._applied = image.version
        self._controller.watch(lambda old, new: self._images.put_nowait((old, new)))
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def give_up(self, answer: TidelogError) -> None:
        """Nothing is followed any more: whoever waits for it is told."""
        waiters, self._waiters = self._waiters, []
        for _, turn in waiters:
            if not turn.done():
                turn.set_exception(answer)

    # --- following

    async def applied(self, version: int) -> None:
        """Waits until the partitions here are what the image of `version` says."""
        if version > self._applied:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((version, turn))
            await turn
        await self._hosted.listeners_settled()

    def retry_uncreated(self) -> None:
        """Has partitions tried again that could not be made."""
        if self._hosted.uncreated:
            image = self._controller.image
            self._images.put_nowait((image, image))

    async def _follow(self) -> None:
        while True:
            old, new = await self._images.get()
            try:
                await self._apply(old, new)
            except Exception as error:
                self._fail(error)
                return
            self._applied = new.version
            for version, turn in self._waiters:
                if version <= new.version and not turn.done():
                    turn.set_result(None)
            self._waiters = [entry for entry in self._waiters if not entry[1].done()]

    async def _apply(self, old: ClusterImage, new: ClusterImage) -> None:
        hosted = self._hosted
        delta = delta_between(old, new)
        for stream in delta.deleted:
            await self._remove(stream)
        for stream in delta.streams:
            for want in placed_on(self._broker_id, stream):
                partition = hosted.served.get((want.stream_id, want.partition))
                if partition is not None:
                    hosted.configure(partition, stream)
        changed = {stream.id: stream for stream in delta.streams}
        again = {key[0]: new.streams[key[0]] for key in hosted.uncreated if key[0] in new.streams}
        await self._create({**again, **changed}.values())

    async def _create(self, streams: Iterable[StreamImage]) -> None:
        """Makes the partitions of `streams` that are not there yet, several at a time."""
        new = [
            (stream, want)
            for stream in streams
            for want in placed_on(self._broker_id, stream)
            if self._hosted.is_missing(want)
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
                    self._hosted.add(stream, want.partition, one)

    def _make(self, want: Wanted) -> asyncio.Future[PartitionLog]:
        return self._loop.run_in_executor(self._threads.creation, self._store.create, want)

    async def _remove(self, stream: StreamImage) -> None:
        gone = self._hosted.remove(stream)

        def remove() -> str | None:
            return self._store.delete_stream(stream.name, stream.id, [partition.log for partition in gone])

        # A round that writes now may still want a flush; after it nobody touches the files any more.
        await self._rounds.exclusively(lambda: None)
        await self._flushes.forget(gone)
        try:
            path = await self._rounds.exclusively(remove)
        except OSError as error:
            log.error(
                "a deleted stream's folder could not be set aside", stream=stream.name, error=str(error)
            )
        else:
            self._deleted(path)
