"""Streams with a subject record it: messages in, acknowledgements out after the commit (N1–N3, N5).

One connection for the broker, one subscription for each stream. All messages of one read
become one append per partition; a message that cannot be stored is counted, answered
with a JetStream error if it asked for an answer, and harms nothing else. When too much
waits to be committed, reading pauses and the NATS server holds the rest, until it loses
its patience and disconnects us.

A stream with several partitions places a message by FNV-1a-32 of its subject modulo
their number, so the messages of one subject stay in order. Each broker that leads one of them
subscribes, and records the share of those that it leads. One that leads no more is silent (N5),
and a leader cannot know by itself whether it is one: it refuses a message only after the controller has
confirmed that it led when the message came. Who began to lead later does not get that message (N7).
One that begins to lead records what its server sends from then on: what was on its way before, the
leader before it may have recorded.

Neighbours: `recording` is one such stream, `message_facts` what a message becomes, `jetstream` the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

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
from tidelog.records.limits import BATCH_OVERHEAD_BYTES
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.log_limit import LogLimit
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.errors import NatsError
from tidelog_broker.nats.jetstream import Acknowledger, Failure, publication
from tidelog_broker.nats.message_facts import Refused, facts
from tidelog_broker.nats.parser import Message
from tidelog_broker.nats.recording import Recording
from tidelog_broker.nats.subjects import is_reserved
from tidelog_broker.writing.append_requests import RecordsAppend, RecordsAppended
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.record_columns import RecordColumns, record_bytes_max

log = structlog.get_logger(__name__)

INFLIGHT_BYTES_MAX = 32 << 20
"""Bytes of messages that wait to be committed; over it the connection is not read."""

APPEND_BYTES_MAX = 256 << 10
"""Messages are appended in groups of about this size: one is refused or stored as a whole."""

SETTLE_SECONDS_MAX = 2.0
"""How long the creation of a stream waits for the NATS server to know its subscription."""

DRAIN_SECONDS_MAX = 5.0

REFUSE_SECONDS_MAX = 5.0
"""How long a refusal waits for the controller; then the publisher is not answered, and asks again."""

REFUSALS_MAX = 10_000
"""So many refusals wait for the controller; the messages of more are not answered."""


class Recorder:
    """See the module. A `PartitionListener` of the broker."""

    def __init__(self, broker: Broker, connection: NatsConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._recordings: dict[bytes, Recording] = {}
        self._outcomes = broker.metrics.nats_messages
        self._log_limit = LogLimit(asyncio.get_running_loop().time)
        self._inflight = 0
        self._paused = False
        self._silent = False
        """The broker may have been replaced without knowing."""
        self._said = 0
        """Subscriptions begun and ended."""
        self._confirmed = 0
        """So many of them the server is known to have heard of."""
        self._refusals: list[_Refusal] = []
        self._refusals_count = 0
        """Messages that they answer."""
        self._refusing: asyncio.Task[None] | None = None
        """Has the controller confirm that this broker leads; None: nothing is refused."""
        self._begun: list[Recording] = []
        """Those whose subscription begins in this turn of the event loop."""
        self._opening: list[tuple[Recording, Partition, int]] | None = None
        """Partitions that begin to be led in this turn, with their leader epochs; None: there is none yet."""

    def __repr__(self) -> str:
        return f"<Recorder streams={len(self._recordings)} inflight={self._inflight} paused={self._paused}>"

    # --- following the broker's partitions

    def partition_added(self, partition: Partition) -> None:
        if not partition.config.subject:
            return
        recording = self._recordings.get(partition.stream_id)
        if recording is None:
            recording = self._recordings[partition.stream_id] = Recording(partition)
            if not self._silent:
                self._subscribe(recording)
        recording.led[partition.partition] = partition
        recording.count = partition.siblings
        recording.places.clear()
        if recording.subscription is None or recording in self._begun:
            recording.partitions[partition.partition] = partition
        else:
            self._open_later(recording, partition)

    def _open_later(self, recording: Recording, partition: Partition) -> None:
        """It takes messages once everything is in that the server had sent before."""
        if self._opening is None:
            opening = self._opening = []
            self._said += 1
            self._connection.fence(lambda: self._open(opening))
            asyncio.get_running_loop().call_soon(self._turn_over)
        self._opening.append((recording, partition, partition.leader_epoch))

    def _open(self, opening: list[tuple[Recording, Partition, int]]) -> None:
        for recording, partition, epoch in opening:
            led = recording.led.get(partition.partition) is partition and partition.leader_epoch == epoch
            if led and self._recordings.get(recording.stream_id) is recording:
                recording.partitions[partition.partition] = partition

    def _turn_over(self) -> None:
        self._begun.clear()
        self._opening = None

    def partition_changed(self, partition: Partition) -> None:
        recording = self._recordings.get(partition.stream_id)
        before = recording.pattern.decode() if recording is not None else ""
        if partition.config.subject != before:
            if recording is not None:
                self._end(partition.stream_id)
                others = [p for p in recording.led.values() if p is not partition]
            else:
                others = []
            for one in (*others, partition):
                self.partition_added(one)
        elif recording is not None and recording.count != partition.siblings:
            recording.count = partition.siblings
            recording.places.clear()

    def partition_removed(self, partition: Partition) -> None:
        recording = self._recordings.get(partition.stream_id)
        if recording is None:
            return
        recording.led.pop(partition.partition, None)
        recording.partitions.pop(partition.partition, None)
        if not recording.led:
            self._end(partition.stream_id)

    async def settled(self) -> None:
        """Waits until the server knows which subscriptions began and ended, if it is there."""
        said = self._said
        if self._confirmed >= said:
            return
        try:
            await self._connection.flush(SETTLE_SECONDS_MAX)
        except NatsError as error:
            log.warning("the NATS server has not confirmed a subscription yet", error=str(error))
        # Not asked again: whoever was not heard now is announced with the next connection.
        self._confirmed = max(self._confirmed, said)

    def _subscribe(self, recording: Recording) -> None:
        self._said += 1
        recording.subscription = self._connection.subscribe(
            recording.pattern, lambda messages: self._record(recording, messages)
        )
        recording.partitions.update(recording.led)
        self._begun.append(recording)
        asyncio.get_running_loop().call_soon(self._turn_over)

    def _end(self, stream_id: bytes) -> None:
        recording = self._recordings.pop(stream_id, None)
        if recording is not None and recording.subscription is not None:
            self._said += 1
            self._connection.unsubscribe(recording.subscription)

    def session(self, good: bool) -> None:
        """Whether the controller takes this broker for alive: if not, another may lead already (N5)."""
        self._silent = not good
        for recording in self._recordings.values():
            if good and recording.subscription is None:
                self._subscribe(recording)
            elif not good and recording.subscription is not None:
                self._said += 1
                self._connection.unsubscribe(recording.subscription)
                recording.subscription = None

    async def drain(self) -> None:
        """Takes in what the server has sent, then nothing more (N5)."""
        subscriptions = [r.subscription for r in self._recordings.values() if r.subscription is not None]
        self._recordings.clear()
        try:
            await self._connection.drain(subscriptions, DRAIN_SECONDS_MAX)
        except NatsError as error:
            log.warning("the NATS subscriptions could not be drained", error=str(error))

    # --- messages in

    def _record(self, recording: Recording, messages: Sequence[Message]) -> None:
        now_us = self._broker.clock.append_us()
        if not self._record_plain(recording, messages, now_us):
            self._record_each(recording, messages, now_us)

    def _record_plain(self, recording: Recording, messages: Sequence[Message], now_us: int) -> bool:
        """Records messages without headers for a single partition all at once; False: they are not such."""
        partition = recording.partitions.get(0)
        if recording.count != 1 or partition is None or recording.filter_reserved:
            return False
        subjects, replies, blocks, payloads = zip(*messages, strict=True)
        names = b"".join(subjects)
        if blocks.count(None) != len(blocks) or not names.isascii():
            return False
        size = len(names) + sum(map(len, payloads))
        records = RecordColumns.of_subjects(payloads, subjects, size, now_us)
        if records.bytes > min(APPEND_BYTES_MAX, _room(partition)):
            if len(messages) == 1:
                return False
            half = len(messages) // 2
            for part in (messages[:half], messages[half:]):
                if not self._record_plain(recording, part, now_us):
                    self._record_each(recording, part, now_us)
            return True
        self._append(partition, _Group(records, list(replies)))
        return True

    def _record_each(self, recording: Recording, messages: Sequence[Message], now_us: int) -> None:
        """Records messages of any kind, one by one."""
        groups: dict[Partition, _Group] = {}
        for message in messages:
            subject = message[0]
            if recording.filter_reserved and is_reserved(subject):
                continue
            partition = recording.partition_of(subject)
            if partition is None:
                self._refuse_lost(recording, message)
                continue
            try:
                name, headers, message_id = facts(message, recording.name, partition)
            except Refused as refused:
                self._refuse(partition, message, refused.failure, refused.detail)
                continue
            payload = message[3]
            size = record_bytes_max(payload, None, headers, name)
            room = _room(partition)
            if size > room:
                self._refuse(partition, message, Failure.TOO_LARGE, f"{size} bytes")
                continue
            group = groups.get(partition)
            if group is not None and group.records.bytes + size > min(APPEND_BYTES_MAX, room):
                self._append(partition, groups.pop(partition))
                group = None
            if group is None:
                group = groups[partition] = _Group(RecordColumns(), [])
            group.records.add(payload, now_us, headers=headers, subject=name, message_id=message_id)
            group.replies.append(message[1])
        for partition, group in groups.items():
            self._append(partition, group)

    def _refuse_lost(self, recording: Recording, message: Message) -> None:
        """Of a partition that is led elsewhere, whoever leads it speaks; a lost one of ours, we."""
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

    def _append(self, partition: Partition, group: _Group) -> None:
        def done(outcome: RecordsAppended | TidelogError) -> None:
            self._inflight -= group.records.bytes
            if self._paused and self._inflight <= INFLIGHT_BYTES_MAX // 2:
                self._paused = False
                self._connection.resume_reading()
            self._answer(partition, group, outcome)

        append = RecordsAppend(group.records, done, deadline=self._broker.deadline(None), recorded=True)
        self._inflight += append.bytes
        try:
            self._broker.append(partition, append)
        except TidelogError as error:
            done(error)
            return
        if self._inflight > INFLIGHT_BYTES_MAX and not self._paused:
            self._paused = True
            self._connection.pause_reading()

    # --- answers out

    def _answer(self, partition: Partition, group: _Group, outcome: RecordsAppended | TidelogError) -> None:
        if isinstance(outcome, TidelogError):
            self._outcomes.labels(outcome.code).inc(len(group.replies))
            self._note(partition, str(outcome), len(group.replies))
            if not isinstance(outcome, NotLeader):
                # Else the broker that leads now answers.
                failure, detail = _failure_of(outcome), str(outcome)
                self._refuse_all(_led(partition), partition, group.replies, failure, detail)
            return
        duplicates = outcome.duplicates
        self._outcomes.labels("recorded").inc(len(group.replies) - len(duplicates))
        if duplicates:
            self._outcomes.labels("duplicate").inc(len(duplicates))
        acknowledger = Acknowledger(partition.name, partition.partition, outcome.leader_epoch)
        if not duplicates:
            self._send(partition, acknowledger.publications(group.replies, outcome.offsets))
            return
        accepted, duplicate = acknowledger.accepted, acknowledger.duplicate
        frames = []
        for index, (reply, offset) in enumerate(zip(group.replies, outcome.offsets, strict=True)):
            if reply:
                body = duplicate(offset) if index in duplicates else accepted(offset)
                frames.append(publication(reply, body))
        self._send(partition, frames)

    def _refuse(self, partition: Partition, message: Message, failure: Failure, detail: str) -> None:
        self._count_refused(partition, failure, detail)
        self._refuse_all(_led(partition), partition, [message[1]], failure, detail)

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
        """Once the controller has confirmed that `led` is led here; else another broker may record it.

        `partition` is of the same stream.
        """
        asked = [reply for reply in replies if reply]
        if not asked or self._silent or self._refusals_count + len(asked) > REFUSALS_MAX:
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
            log.exception("refusals to NATS publishers failed unexpectedly; later ones are sent")
        finally:
            self._refusing = None

    async def _send_if_led(self, refusals: list[_Refusal]) -> None:
        try:
            async with asyncio.timeout(REFUSE_SECONDS_MAX):
                image = await self._broker.controller.newest()
        except (TidelogError, TimeoutError) as error:
            log.debug("publishers get no refusals; no controller says who leads", reason=str(error))
            return
        for led, partition, frames in refusals:
            placed = image.partition(*led.key)
            leads = placed and (placed.leader, placed.leader_epoch) == (self._broker.broker_id, led.epoch)
            if leads and not self._silent:
                self._send(partition, frames)

    async def refused(self) -> None:
        """Waits until nothing is left to refuse, at a stop."""
        if self._refusing is not None:
            await self._refusing

    def _send(self, partition: Partition, frames: list[bytes]) -> None:
        if not frames or partition.config.nats_ack is NatsAck.NEVER:
            return
        try:
            self._connection.write(b"".join(frames))
        except NatsError as error:
            # The records are safe; their publishers will ask again.
            self._outcomes.labels("answer_lost").inc(len(frames))
            self._note(partition, str(error), len(frames), "answers to NATS publishers were lost")

    def _note(
        self, partition: Partition, reason: str, count: int, what: str = "NATS messages were not recorded"
    ) -> None:
        left_out = self._log_limit.left_out(f"{partition.name}: {what}: {reason.partition(':')[0]}")
        if left_out is not None:
            log.warning(what, stream=partition.name, reason=reason, messages=count, left_out_before=left_out)


class _Group(NamedTuple):
    """Messages of one partition that are appended together."""

    records: RecordColumns
    replies: list[bytes | None]


class _Led(NamedTuple):
    """What this broker led when it refused something, by its own image."""

    key: tuple[bytes, int]
    """Stream id and partition."""
    epoch: int


def _led(partition: Partition) -> _Led:
    return _Led(partition.key, partition.leader_epoch)


class _Refusal(NamedTuple):
    """Answers that wait for the controller's word."""

    led: _Led
    partition: Partition
    """Of the same stream."""
    frames: list[bytes]


def _room(partition: Partition) -> int:
    """Bytes of records that fit into one batch."""
    return partition.limits.batch_bytes_max - BATCH_OVERHEAD_BYTES


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
