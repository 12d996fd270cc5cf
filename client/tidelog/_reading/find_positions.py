"""Finds positions in the partitions of many streams with one round of concurrent requests.

All streams are resolved with one request. Then each leader gets one request for all its partitions. A
further round asks only for the partitions whose leader did not answer, or has changed. `Places` does the
same for the single partitions of a reader.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog import wire
from tidelog._connecting.broker_channel import BrokerChannel, on
from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._connecting.retry import RetryPolicy, may_repeat, of_a_leader, retrying
from tidelog._connecting.status import error_from_message
from tidelog._reading.start_and_end import ANSWER_S_MAX, Start, set_start
from tidelog.errors import StreamNotFound, TidelogError
from tidelog.model import FoundPosition, FoundPositions, StreamDescription
from tidelog_proto import log_pb2

PARTITIONS_PER_REQUEST_MAX: Final = 500

Starts = Start | Mapping[int, Start]
"""One start for all partitions of a stream, or partition → start."""

_Key = tuple[str, int]
"""Stream name and partition."""


class PositionSearch:
    """One search: what is asked for, what was found, and what is still open."""

    def __init__(self, channels: Channels, metadata: Metadata, starts: Mapping[str, Starts]) -> None:
        self._channels = channels
        self._metadata = metadata
        self._starts = starts
        self._streams: dict[str, StreamDescription] = {}
        self._open: dict[_Key, Start] = {}
        self._found: dict[_Key, FoundPosition] = {}
        self._errors: dict[_Key, TidelogError] = {}
        self._stale = True
        """The descriptions must be requested again before the next round."""

    async def run(
        self, *, timeout_s: float, policy: RetryPolicy, rng: random.Random
    ) -> dict[str, FoundPositions]:
        """The answer by stream, without the streams that do not exist.

        Raises the last retriable error if a partition has no answer when `timeout_s` is over.
        """
        await retrying(
            self._round,
            timeout_s=timeout_s,
            repeat_indefinite=True,
            policy=policy,
            rng=rng,
            leader=True,
        )
        return {name: self._answer(stream) for name, stream in self._streams.items()}

    def _answer(self, stream: StreamDescription) -> FoundPositions:
        name = stream.name
        return FoundPositions(
            name,
            stream.stream_id,
            len(stream.partitions),
            {number: found for (whose, number), found in self._found.items() if whose == name},
            {number: error for (whose, number), error in self._errors.items() if whose == name},
        )

    async def _round(self) -> None:
        """Asks for everything that is open; raises a retriable error if something stays open."""
        if self._stale:
            await self._describe()
        self._stale = False
        by_leader, failures = self._by_leader()
        requests = [
            self._ask(address, keys[at : at + PARTITIONS_PER_REQUEST_MAX])
            for address, keys in by_leader.items()
            for at in range(0, len(keys), PARTITIONS_PER_REQUEST_MAX)
        ]
        for failed in await asyncio.gather(*requests):
            failures += failed
        if failures:
            raise failures[0]

    async def _describe(self) -> None:
        """Requests the descriptions of the streams that are not known, or have open partitions."""
        names = list(self._starts) if not self._streams else list({name: None for name, _ in self._open})
        answers = await asyncio.gather(*map(self._metadata.refresh, names), return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, StreamNotFound):
                self._forget(name)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._learn(name, answer)

    def _learn(self, name: str, stream: StreamDescription) -> None:
        known = self._streams.get(name)
        if known is not None and known.stream_id == stream.stream_id:
            self._streams[name] = stream
            return
        # The first answer, or the stream was created again: what was found belongs to the old one.
        self._forget(name)
        self._streams[name] = stream
        starts = self._starts[name]
        if not isinstance(starts, Mapping):
            starts = dict.fromkeys(range(len(stream.partitions)), starts)
        self._open |= {(name, number): start for number, start in starts.items()}

    def _forget(self, name: str) -> None:
        self._streams.pop(name, None)
        for found in (self._open, self._found, self._errors):
            for key in [key for key in found if key[0] == name]:
                del found[key]

    def _by_leader(self) -> tuple[dict[str, list[_Key]], list[TidelogError]]:
        """The open partitions by the address of their leader, and the errors of those that have none."""
        found: dict[str, list[_Key]] = {}
        failures: list[TidelogError] = []
        for key in list(self._open):
            name, number = key
            try:
                address = self._metadata.leader_address(self._streams[name], number)
            except TidelogError as error:
                failures += self._failed(key, error)
            else:
                found.setdefault(address, []).append(key)
        return found, failures

    async def _ask(self, address: str, keys: Sequence[_Key]) -> list[TidelogError]:
        """Sends one request; returns the retriable errors of partitions that stay open."""
        request = log_pb2.OffsetsRequest()
        for name, number in keys:
            wanted = request.partitions.add(stream_id=self._streams[name].stream_id, partition=number)
            set_start(wanted, self._open[name, number])

        async def send(channel: BrokerChannel) -> log_pb2.OffsetsResponse:
            timeout_s = min(self._channels.request_timeout_s, ANSWER_S_MAX)
            return await channel.log.Offsets(request, timeout=timeout_s)

        try:
            answer = await on(self._channels.to(address), send)
        except TidelogError as error:
            return [failure for key in keys for failure in self._failed(key, error)]
        failures: list[TidelogError] = []
        for key, found in zip(keys, answer.partitions, strict=True):
            if found.HasField("error"):
                where = f"{key[0]}/{key[1]}"
                failures += self._failed(key, of_a_leader(error_from_message(found.error), where))
                continue
            del self._open[key]
            self._found[key] = FoundPosition(
                wire.position_from_proto(found.position), found.log_start_offset, found.high_watermark
            )
        return failures

    def _failed(self, key: _Key, error: TidelogError) -> list[TidelogError]:
        """Notes an error that ends the search in this partition; returns any other."""
        if not may_repeat(error, repeat_indefinite=True):
            del self._open[key]
            self._errors[key] = error
            return []
        name, number = key
        if not self._metadata.redirected(self._streams[name], number, error):
            self._stale = True
        return [error]
