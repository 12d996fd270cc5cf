"""Fetch calls: the half of a reader that talks to brokers.

One call to each leader, a few answers ahead of the consumer, begun again where it stood
when a connection breaks. `Progress` (`_fetching`) checks and cuts what arrives; `Places`
knows where to go on when a position is lost; `Reader` hands the batches out.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import grpc
import grpc.aio

from tidelog._channels import Broker, Channels, FetchCall
from tidelog._fetching import FetchedBatch, Progress
from tidelog._framing import FetchAnswer
from tidelog._options import ReaderOptions
from tidelog._places import Places
from tidelog._status import error_from_rpc
from tidelog.errors import (
    ConnectionLost,
    InternalError,
    LogTruncated,
    OffsetOutOfRange,
    TidelogError,
    Unavailable,
)
from tidelog_proto import log_pb2

PARTITIONS_PER_CALL_MAX: Final = 500


class FetchCalls:
    """The running calls of one reader, and what they brought."""

    def __init__(
        self, places: Places, channels: Channels, options: ReaderOptions, rng: random.Random
    ) -> None:
        self.arrived: asyncio.Queue[list[FetchedBatch] | TidelogError | None] = asyncio.Queue(
            options.answers_ahead_max
        )
        """Batches; or what ended a call for good; or None, after the last batch of all."""
        self.running: set[asyncio.Task[None]] = set()
        self._reader: object = None
        """Whose calls they are, while they run: a client knows its readers weakly, and must find
        one to close that was dropped without being closed."""
        self._stream = places.stream
        self._places = places
        self._channels = channels
        self._options = options
        self._rng = rng
        self._unended = 0
        """Partitions that have not been read to their end."""

    def begin(self, reader: object, unended: list[Progress]) -> None:
        """Starts to read these partitions, at least one, for `reader`."""
        self._reader = reader
        self._unended = len(unended)
        for at in range(0, len(unended), PARTITIONS_PER_CALL_MAX):
            self._spawn(unended[at : at + PARTITIONS_PER_CALL_MAX])

    async def close(self) -> None:
        """Ends the calls."""
        tasks = [task for task in self.running if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, group: list[Progress], failures: int = 0) -> None:
        name = f"fetch {self._stream}/{','.join(str(progress.partition) for progress in group[:8])}"
        task = asyncio.create_task(self._run(group, failures), name=name)
        self.running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not self.running:
            self._reader = None

    async def _run(self, group: list[Progress], failures: int) -> None:
        """Reads a group of partitions until they end; whatever ends it is told to the consumer."""
        try:
            await self._read_group(group, failures)
        except asyncio.CancelledError:
            raise
        except TidelogError as error:
            await self.arrived.put(error)
        except Exception as error:
            await self.arrived.put(InternalError(f"reading {self._stream} failed: {error!r}"))

    async def _read_group(self, group: list[Progress], failures: int) -> None:
        loop = asyncio.get_running_loop()
        good_at = loop.time()
        error: TidelogError | None = None
        while group:
            if failures:
                hint = error.retry_after_ms if error is not None else None
                await asyncio.sleep(self._options.retry.delay_s(failures, self._rng, hint))
            before = {progress.partition: progress.next_offset for progress in group}
            try:
                if failures:
                    await self._places.refresh()
                address, group = self._one_leader(group)
                await self._one_call(self._channels.broker(address), group)
            except TidelogError as failure:
                error = failure
                if not error.retriable:
                    raise
            if any(progress.next_offset != before[progress.partition] for progress in group):
                failures, good_at = 0, loop.time()
            failures += 1
            group = [progress for progress in group if not progress.ended]
            if group and loop.time() - good_at > self._options.retry_timeout_s:
                raise error or ConnectionLost(f"no call for {self._stream} lasts")

    def _one_leader(self, group: list[Progress]) -> tuple[str, list[Progress]]:
        """The partitions of `group` that share the first one's leader; the others get a call of their own."""
        by_leader: dict[str, list[Progress]] = {}
        for progress in group:
            address = self._places.leader_address(progress.partition)
            by_leader.setdefault(address, []).append(progress)
        (address, ours), *others = by_leader.items()
        for _, theirs in others:
            self._spawn(theirs)
        return address, ours

    async def _one_call(self, broker: Broker, group: list[Progress]) -> None:
        """One Fetch call; returns when all of `group` have ended, raises what ended it early.

        A partition that goes wrong alone is taken out of `group`.
        """
        # Always following: where a reader stops is known before it begins (`Places.between`).
        request = log_pb2.FetchRequest(
            partitions=[progress.request() for progress in group],
            follow=True,
            response_bytes_max=self._options.response_bytes_max,
            heartbeat_ms=self._options.heartbeat_ms,
        )
        asked = list(group)
        reading = set(range(len(asked)))
        call = broker.fetch(request)
        try:
            while reading:
                answer = await self._answer(call, broker)
                index = answer.facts.index
                if index not in reading:
                    continue
                progress = asked[index]
                batches: list[FetchedBatch] = []
                failure: TidelogError | None = None
                try:
                    batches.extend(progress.accept(answer))
                except TidelogError as error:
                    failure = error
                if batches:
                    await self.arrived.put(batches)
                if failure is not None:
                    reading.discard(index)
                    failure = await self._mended(progress, failure)
                    if not reading:
                        raise failure
                    group.remove(progress)
                    self._spawn([progress], failures=1)
                elif progress.ended:
                    reading.discard(index)
                    await self._one_ended()
        except grpc.RpcError as error:
            raise error_from_rpc(error, broker.address) from None
        finally:
            call.cancel()

    async def _answer(self, call: FetchCall, broker: Broker) -> FetchAnswer:
        try:
            async with asyncio.timeout(self._options.silence_timeout_s):
                answer = await call.read()
        except TimeoutError:
            raise ConnectionLost(
                f"{broker.address} said nothing for {self._options.silence_timeout_s:g} s"
            ) from None
        if not isinstance(answer, FetchAnswer):
            raise ConnectionLost(f"{broker.address} ended the call")
        return answer

    async def _one_ended(self) -> None:
        self._unended -= 1
        if not self._unended:
            await self.arrived.put(None)

    async def _mended(self, progress: Progress, error: TidelogError) -> TidelogError:
        """A retriable error instead of `error`: a lost position was put right by the policy.

        Raises what cannot be mended.
        """
        if isinstance(error, OffsetOutOfRange | LogTruncated):
            error.details.setdefault("offset", str(progress.next_offset))
            progress.jump(await self._places.instead(progress.partition, error))
            return Unavailable(
                f"{self._stream}/{progress.partition} goes on at {progress.next_offset}: {error}"
            )
        if not error.retriable:
            raise error
        return error
