"""The Fetch calls of a reader: the part that talks to brokers.

There is one call to each leader, a few answers ahead of the consumer. When a connection breaks or a broker
falls silent, the call starts again at the same position, at the new leader if there is one. `FetchState`
(`fetching`) checks and cuts the answers; `Places` finds the next position when one is lost; `Reader` gives
the batches to the consumer.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import grpc
import grpc.aio

from tidelog import wire
from tidelog._connecting.broker_channel import CONNECT_S, BrokerChannel, FetchCall, reach
from tidelog._connecting.channels import Channels
from tidelog._connecting.framing import FetchAnswer
from tidelog._connecting.retry import may_repeat, of_a_leader
from tidelog._connecting.status import error_from_rpc
from tidelog._options import SILENCE_S_MAX, ReaderOptions
from tidelog._reading.fetching import FetchedBatch, FetchState
from tidelog._reading.groups import Group, split_by_leader
from tidelog._reading.start_and_end import Places
from tidelog.errors import (
    ConnectionLost,
    InternalError,
    LogTruncated,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.model import Projection
from tidelog_proto import log_pb2

PARTITIONS_PER_CALL_MAX: Final = 500

REGROUP_S: Final = 0.005
"""Partitions that leave their calls within this time share the next call: a leader that stops gives up
many partitions."""


class FetchCalls:
    """The running calls of one reader, and the batches that they brought."""

    def __init__(
        self,
        places: Places,
        channels: Channels,
        options: ReaderOptions,
        rng: random.Random,
        projection: Projection | None,
    ) -> None:
        self.arrived: asyncio.Queue[list[FetchedBatch] | TidelogError | None] = asyncio.Queue(
            options.answers_ahead_max
        )
        """Lists of batches; an error that ended the reading; or None after the last batch of all."""
        self.running: dict[asyncio.Task[None], None] = {}
        self._reader: object = None
        """The reader, while calls run. A client has only weak references to its readers; this one keeps a
        reader that was dropped without being closed, so that the client can close it."""
        self._stream = places.stream
        self._places = places
        self._channels = channels
        self._options = options
        self._rng = rng
        self._projection = None if projection is None else wire.projection_to_proto(projection)
        self._unended = 0
        """The number of partitions that are not read to their end."""
        self._homeless: list[tuple[FetchState, bool]] = []
        """Partitions that left their call, and whether the broker named the leader."""
        self._regrouping: asyncio.TimerHandle | None = None

    def begin(self, reader: object, unended: list[FetchState]) -> None:
        """Starts to read these partitions (at least one) for `reader`."""
        self._reader = reader
        self._unended = len(unended)
        for at in range(0, len(unended), PARTITIONS_PER_CALL_MAX):
            self._spawn(self._group(unended[at : at + PARTITIONS_PER_CALL_MAX]))

    async def close(self) -> None:
        """Ends the calls."""
        if self._regrouping is not None:
            self._regrouping.cancel()
            self._regrouping = None
            self._homeless.clear()
        tasks = [task for task in self.running if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _group(self, partitions: list[FetchState]) -> Group:
        return Group(partitions, self._options.silence_timeout_s)

    def _spawn(self, group: Group, lost: TidelogError | None = None) -> None:
        """Reads the group in a task of its own; `lost`: the position of its only partition was lost."""
        numbers = ",".join(str(state.partition) for state in group.partitions[:8])
        task = asyncio.create_task(self._run(group, lost), name=f"fetch {self._stream}/{numbers}")
        self.running[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.running.pop(task, None)
        if not self.running and not self._homeless:
            self._reader = None

    async def _run(self, group: Group, lost: TidelogError | None) -> None:
        """Reads a group of partitions until they end; an error that ends it goes to the consumer."""
        try:
            if lost is not None:
                await self._mend(group.partitions[0], lost)
            await self._read_group(group)
        except asyncio.CancelledError:
            raise
        except TidelogError as error:
            await self.arrived.put(error)
        except Exception as error:
            await self.arrived.put(InternalError(f"reading {self._stream} failed: {error!r}"))

    async def _read_group(self, group: Group) -> None:
        loop = asyncio.get_running_loop()
        while group.partitions:
            if group.failures and not group.redirected:
                await asyncio.sleep(self._options.retry.pause_s(group.error, group.failures, self._rng))
            try:
                if group.failures and not group.redirected:
                    await self._places.refresh()
                group.redirected = False
                self._keep_one_leader(group)
                await self._one_call(self._channels.to(group.address), group)
            except TidelogError as failure:
                group.error = failure
                if not may_repeat(failure, repeat_indefinite=True):
                    raise
            if not group.failures:
                group.failing_since = loop.time()
            group.failures += 1
            group.partitions = [state for state in group.partitions if not state.ended]
            if group.partitions and loop.time() - group.failing_since > self._options.retry_timeout_s:
                raise group.error or ConnectionLost(f"every call for {self._stream} broke")

    def _keep_one_leader(self, group: Group) -> None:
        """Keeps the partitions of the first leader in the group; the others get calls of their own.

        Raises `NotLeader` if none of them has a leader.
        """
        by_leader, leaderless, missing = split_by_leader(group.partitions, self._places)
        if not by_leader:
            assert missing is not None
            raise missing
        (address, group.partitions), *others = by_leader.items()
        if address != group.address:
            group.address, group.silence_s = address, self._options.silence_timeout_s
        for _, theirs in others:
            self._spawn(self._group(theirs))
        if leaderless:
            waiting = self._group(leaderless)
            waiting.failures, waiting.error = 1, missing
            waiting.failing_since = asyncio.get_running_loop().time()
            self._spawn(waiting)

    def _set_free(self, state: FetchState, redirected: bool) -> None:
        """Lets a partition continue in another call."""
        self._homeless.append((state, redirected))
        if self._regrouping is None:
            self._regrouping = asyncio.get_running_loop().call_later(REGROUP_S, self._regroup)

    def _regroup(self) -> None:
        self._regrouping = None
        homeless, self._homeless = self._homeless, []
        for redirected in (True, False):
            partitions = [state for state, named in homeless if named is redirected]
            for at in range(0, len(partitions), PARTITIONS_PER_CALL_MAX):
                group = self._group(partitions[at : at + PARTITIONS_PER_CALL_MAX])
                group.failures, group.redirected = 1, redirected
                group.failing_since = asyncio.get_running_loop().time()
                self._spawn(group)

    async def _one_call(self, channel: BrokerChannel, group: Group) -> None:
        """Runs one Fetch call until all partitions of `group` have ended; raises an error that ends it early.

        A partition that fails alone is taken out of `group`.
        """
        if not channel.connected:
            # It waits only shortly: the leader may be gone, and another broker may lead.
            await reach(channel, min(CONNECT_S * (group.failures + 1), SILENCE_S_MAX))
        # Always with follow: the end is known before the call begins (`Places.between`).
        request = log_pb2.FetchRequest(
            partitions=[state.request() for state in group.partitions],
            follow=True,
            response_bytes_max=self._options.response_bytes_max,
            heartbeat_ms=self._options.heartbeat_ms,
            format=log_pb2.VERBATIM if self._projection is None else log_pb2.PROJECTED,
            projection=self._projection,
        )
        asked = list(group.partitions)
        reading = set(range(len(asked)))
        call = channel.fetch(request)
        try:
            while reading:
                answer = await self._answer(call, channel, group)
                index = answer.facts.index
                if index not in reading:
                    continue
                state = asked[index]
                batches: list[FetchedBatch] = []
                failure: TidelogError | None = None
                try:
                    batches.extend(state.accept(answer))
                except TidelogError as error:
                    failure = error
                if batches:
                    await self.arrived.put(batches)
                if failure is None:
                    group.failures = 0
                if failure is not None or state.ended:
                    reading.discard(index)
                if failure is not None:
                    self._part(state, failure, group, last=not reading)
                elif state.ended:
                    await self._one_ended()
        except grpc.RpcError as error:
            raise error_from_rpc(error, channel.address) from None
        finally:
            call.cancel()

    async def _answer(self, call: FetchCall, channel: BrokerChannel, group: Group) -> FetchAnswer:
        try:
            async with asyncio.timeout(group.silence_s):
                answer = await call.read()
        except TimeoutError:
            silence_s = group.silence_s
            group.silence_s = max(silence_s, min(2 * silence_s, SILENCE_S_MAX))
            raise ConnectionLost(f"{channel.address} sent nothing for {silence_s:g} s") from None
        if not isinstance(answer, FetchAnswer):
            raise ConnectionLost(f"{channel.address} ended the call")
        return answer

    async def _one_ended(self) -> None:
        self._unended -= 1
        if not self._unended:
            await self.arrived.put(None)

    def _part(self, state: FetchState, failure: TidelogError, group: Group, *, last: bool) -> None:
        """Takes a partition that failed out of the call; it continues in another call.

        Raises an error that ends the reading. For the last partition of a call, it also raises an error
        after which the call is repeated.
        """
        if isinstance(failure, OffsetOutOfRange | LogTruncated):
            group.partitions.remove(state)
            self._spawn(self._group([state]), lost=failure)
            return
        failure = of_a_leader(failure, f"{self._stream}/{state.partition}")
        if not may_repeat(failure, repeat_indefinite=True):
            raise failure
        named = self._places.redirected(state.partition, failure) and not group.failures
        if last:
            group.redirected = named
            raise failure
        group.partitions.remove(state)
        self._set_free(state, named)

    async def _mend(self, state: FetchState, lost: TidelogError) -> None:
        """Sets a new position for a lost one, or raises `lost`, by the policy `on_truncated`."""
        assert isinstance(lost, OffsetOutOfRange | LogTruncated)
        lost.details.setdefault("offset", str(state.next_offset))
        state.jump(await self._places.instead(state.partition, lost))
