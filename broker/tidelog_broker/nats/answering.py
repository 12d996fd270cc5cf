"""Answers NATS publishers: acknowledges after the commit, and refuses only what this broker leads (N5).

A leader cannot know from its own image whether it still leads. It refuses a message only after the controller
has confirmed that it led when the message came: otherwise another broker may record the same message.
Neighbours: `recorder` appends the messages, `jetstream` formats the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from tidelog.errors import (
    BatchTooLarge,
    DiskFull,
    IndefiniteError,
    NotLeader,
    ResourceExhausted,
    StorageFailed,
    TidelogError,
)
from tidelog.model import NatsAck
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.log_limit import LogLimit
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.errors import NatsError
from tidelog_broker.nats.jetstream import Acknowledger, Failure, publication
from tidelog_broker.nats.parser import Message
from tidelog_broker.nats.recording import Recording
from tidelog_broker.writing.append_requests import RecordsAppended
from tidelog_broker.writing.partition import Partition

log = structlog.get_logger(__name__)

REFUSE_SECONDS_MAX: Final = 5.0
"""How long a refusal waits for the controller; after that the publisher gets no answer, and asks again."""

REFUSALS_MAX: Final = 10_000
"""At most so many refusals wait for the controller; further messages get no answer."""


class PublisherAnswers:
    """The answers of one broker. Belongs to one event loop."""

    def __init__(self, broker: Broker, connection: NatsConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._outcomes = broker.metrics.nats_messages
        self._log_limit = LogLimit(asyncio.get_running_loop().time)
        self.silent = False
        """Another broker may lead already, so nothing is refused (N5)."""
        self._refusals: list[_Refusal] = []
        self._refusals_count = 0
        """The messages that they answer."""
        self._refusing: asyncio.Task[None] | None = None
        """Asks the controller whether this broker leads; None: nothing is refused now."""

    def __repr__(self) -> str:
        return f"<PublisherAnswers refusals={self._refusals_count} silent={self.silent}>"

    def answer(
        self, partition: Partition, replies: Sequence[bytes | None], outcome: RecordsAppended | TidelogError
    ) -> None:
        """What became of messages that were appended together."""
        if isinstance(outcome, TidelogError):
            self._outcomes.labels(outcome.code).inc(len(replies))
            self._note(partition, str(outcome), len(replies))
            if not isinstance(outcome, NotLeader):
                # After `NotLeader` the broker that leads now answers.
                failure, detail = _failure_of(outcome), str(outcome)
                self._refuse_all(_led(partition), partition, replies, failure, detail)
            return
        duplicates = outcome.duplicates
        self._outcomes.labels("recorded").inc(len(replies) - len(duplicates))
        if duplicates:
            self._outcomes.labels("duplicate").inc(len(duplicates))
        acknowledger = Acknowledger(partition.name, partition.partition, outcome.leader_epoch)
        if not duplicates:
            self.send(partition, acknowledger.publications(replies, outcome.offsets))
            return
        accepted, duplicate = acknowledger.accepted, acknowledger.duplicate
        frames = []
        for index, (reply, offset) in enumerate(zip(replies, outcome.offsets, strict=True)):
            if reply:
                body = duplicate(offset) if index in duplicates else accepted(offset)
                frames.append(publication(reply, body))
        self.send(partition, frames)

    def refuse(self, partition: Partition, message: Message, failure: Failure, detail: str) -> None:
        self._count_refused(partition, failure, detail)
        self._refuse_all(_led(partition), partition, [message[1]], failure, detail)

    def refuse_lost(self, recording: Recording, message: Message) -> None:
        """Refuses a message for a partition whose log is lost here. For all others their leader answers."""
        key = (recording.stream_id, recording.number_of(message[0]))
        if key not in self._broker.lost or not recording.led:
            return
        placed = self._broker.controller.image.partition(*key)
        if placed is not None and placed.leader == self._broker.broker_id:
            any_other = next(iter(recording.led.values()))
            detail = "the partition cannot be served now"
            self._count_refused(any_other, Failure.STOPPING, detail)
            self._refuse_all(
                _Led(key, placed.leader_epoch), any_other, [message[1]], Failure.STOPPING, detail
            )

    def _count_refused(self, partition: Partition, failure: Failure, detail: str) -> None:
        self._outcomes.labels(failure.name.lower()).inc()
        self._note(partition, f"{failure.name.lower()}: {detail}", 1)

    def _refuse_all(
        self,
        led: _Led,
        partition: Partition,
        replies: Sequence[bytes | None],
        failure: Failure,
        detail: str,
    ) -> None:
        """Refuses messages once the controller has confirmed that `led` is led here.

        `partition` is of the same stream.
        """
        asked = [reply for reply in replies if reply]
        if not asked or self.silent or self._refusals_count + len(asked) > REFUSALS_MAX:
            return
        body = Acknowledger(partition.name, led.key[1], led.epoch).refused(failure, detail)
        self._refusals.append(_Refusal(led, partition, [publication(reply, body) for reply in asked]))
        self._refusals_count += len(asked)
        if self._refusing is None:
            self._refusing = asyncio.create_task(self._refuse_confirmed(), name="refusals")

    async def _refuse_confirmed(self) -> None:
        try:
            while self._refusals:
                refusals, self._refusals, self._refusals_count = self._refusals, [], 0
                await self._send_if_led(refusals)
        except Exception:
            log.exception(
                "refusals to NATS publishers failed unexpectedly; later refusals are sent all the same"
            )
        finally:
            self._refusing = None

    async def _send_if_led(self, refusals: list[_Refusal]) -> None:
        try:
            async with asyncio.timeout(REFUSE_SECONDS_MAX):
                image = await self._broker.controller.newest()
        except (TidelogError, TimeoutError) as error:
            log.debug(
                "NATS publishers get no refusals: no controller confirms the leaders", reason=str(error)
            )
            return
        for led, partition, frames in refusals:
            placed = image.partition(*led.key)
            leads = placed and (placed.leader, placed.leader_epoch) == (self._broker.broker_id, led.epoch)
            if leads and not self.silent:
                self.send(partition, frames)

    async def drained(self) -> None:
        """Waits until nothing is left to refuse, at a stop."""
        if self._refusing is not None:
            await self._refusing

    def send(self, partition: Partition, frames: list[bytes]) -> None:
        if not frames or partition.config.nats_ack is NatsAck.NEVER:
            return
        try:
            self._connection.write(b"".join(frames))
        except NatsError as error:
            # The records are safe, and their publishers will ask again.
            self._outcomes.labels("answer_lost").inc(len(frames))
            self._note(partition, str(error), len(frames), "answers to NATS publishers were lost")

    def _note(
        self, partition: Partition, reason: str, count: int, what: str = "NATS messages were not recorded"
    ) -> None:
        left_out = self._log_limit.left_out(f"{partition.name}: {what}: {reason.partition(':')[0]}")
        if left_out is not None:
            log.warning(what, stream=partition.name, reason=reason, messages=count, left_out_before=left_out)


class _Led(NamedTuple):
    """What this broker led when it refused something, by its own image."""

    key: tuple[bytes, int]
    """Stream id and partition."""
    epoch: int


def _led(partition: Partition) -> _Led:
    return _Led(partition.key, partition.leader_epoch)


class _Refusal(NamedTuple):
    """Answers that wait until the controller has confirmed the leader."""

    led: _Led
    partition: Partition
    """Of the same stream."""
    frames: list[bytes]


def _failure_of(error: TidelogError) -> Failure:
    if isinstance(error, DiskFull):
        return Failure.DISK_FULL
    if isinstance(error, ResourceExhausted):
        return Failure.OVERLOADED
    if isinstance(error, BatchTooLarge):
        return Failure.TOO_LARGE
    if isinstance(error, StorageFailed | IndefiniteError):
        return Failure.STORAGE_FAILED
    return Failure.STOPPING
