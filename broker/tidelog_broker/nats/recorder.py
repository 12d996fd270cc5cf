"""Records the NATS messages of streams with a subject, and acknowledges them after the commit (N1–N3, N5).

A broker has one connection, and one subscription for each stream. All messages of one read become one append
per partition. A message that cannot be stored is counted, is answered with a JetStream error if it asked for
an answer, and harms nothing else. While too much waits for its commit, reading pauses and the NATS server
keeps the rest, until it loses patience and disconnects the broker.

A stream with several partitions places a message by FNV-1a-32 of its subject modulo their number, so the
messages of one subject stay in order. Each broker that leads a partition of the stream subscribes, and
records the messages of the partitions that it leads. A broker that no longer leads is silent (N5). A broker
that began to lead after a message came does not get that message (N7): it records what its server sends from
then on, because the leader before it may have recorded what was under way.

Neighbours: `recording` is one stream, `message_facts` makes a message a record, `answering` answers the
publishers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from tidelog.errors import (
    TidelogError,
)
from tidelog.records.limits import BATCH_OVERHEAD_BYTES
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.nats.answering import PublisherAnswers
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.errors import NatsError
from tidelog_broker.nats.jetstream import Failure
from tidelog_broker.nats.message_facts import Refused, facts
from tidelog_broker.nats.parser import Message
from tidelog_broker.nats.recording import Recording
from tidelog_broker.nats.subjects import is_reserved
from tidelog_broker.writing.append_requests import RecordsAppend, RecordsAppended
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.record_columns import RecordColumns, record_bytes_max

log = structlog.get_logger(__name__)

INFLIGHT_BYTES_MAX = 32 << 20
"""Bytes of messages that wait for their commit; above it the connection is not read."""

APPEND_BYTES_MAX = 256 << 10
"""Messages are appended in groups of about this size: a group is refused or stored as a whole."""

SETTLE_SECONDS_MAX = 2.0
"""How long the creation of a stream waits for the NATS server to know its subscription."""

DRAIN_SECONDS_MAX = 5.0


class Recorder:
    """A `PartitionListener` of the broker. Belongs to one event loop."""

    def __init__(self, broker: Broker, connection: NatsConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._answers = PublisherAnswers(broker, connection)
        self._recordings: dict[bytes, Recording] = {}
        self._inflight = 0
        self._paused = False
        self._silent = False
        """Another broker may lead what this one leads, and this one may not know it."""
        self._announced = 0
        """The subscriptions that were begun or ended."""
        self._confirmed = 0
        """How many of them the server has confirmed."""
        self._begun: list[Recording] = []
        """The recordings whose subscription begins in this turn of the event loop."""
        self._opening: list[tuple[Recording, Partition, int]] | None = None
        """Partitions that this broker begins to lead in this turn, with their leader epochs; None: none."""

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
        """The partition takes messages once everything has arrived that the server sent before."""
        if self._opening is None:
            opening = self._opening = []
            self._announced += 1
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
        """Waits until the server knows which subscriptions began and ended, if there is a server."""
        announced = self._announced
        if self._confirmed >= announced:
            return
        try:
            await self._connection.flush(SETTLE_SECONDS_MAX)
        except NatsError as error:
            log.warning("the NATS server did not confirm a change of subscriptions", error=str(error))
        # It is not repeated: the next connection announces all subscriptions.
        self._confirmed = max(self._confirmed, announced)

    def _subscribe(self, recording: Recording) -> None:
        self._announced += 1
        recording.subscription = self._connection.subscribe(
            recording.pattern, lambda messages: self._record(recording, messages)
        )
        recording.partitions.update(recording.led)
        self._begun.append(recording)
        asyncio.get_running_loop().call_soon(self._turn_over)

    def _end(self, stream_id: bytes) -> None:
        recording = self._recordings.pop(stream_id, None)
        if recording is not None and recording.subscription is not None:
            self._announced += 1
            self._connection.unsubscribe(recording.subscription)

    def session(self, good: bool) -> None:
        """The session became good, or ended. Without one, another broker may lead already (N5)."""
        self._silent = self._answers.silent = not good
        for recording in self._recordings.values():
            if good and recording.subscription is None:
                self._subscribe(recording)
            elif not good and recording.subscription is not None:
                self._announced += 1
                self._connection.unsubscribe(recording.subscription)
                recording.subscription = None

    async def drain(self) -> None:
        """Records what the server has sent already, and ends the subscriptions (N5)."""
        subscriptions = [r.subscription for r in self._recordings.values() if r.subscription is not None]
        self._recordings.clear()
        try:
            await self._connection.drain(subscriptions, DRAIN_SECONDS_MAX)
        except NatsError as error:
            log.warning("the NATS subscriptions could not be drained", error=str(error))

    async def refused(self) -> None:
        """Waits until nothing is left to refuse, at a stop."""
        await self._answers.drained()

    # --- messages in

    def _record(self, recording: Recording, messages: Sequence[Message]) -> None:
        now_us = self._broker.clock.append_us()
        if not self._record_plain(recording, messages, now_us):
            self._record_each(recording, messages, now_us)

    def _record_plain(self, recording: Recording, messages: Sequence[Message], now_us: int) -> bool:
        """Records messages without headers for a single partition all at once; False: these are others."""
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
                self._answers.refuse_lost(recording, message)
                continue
            try:
                name, headers, message_id = facts(message, recording.name, partition)
            except Refused as refused:
                self._answers.refuse(partition, message, refused.failure, refused.detail)
                continue
            payload = message[3]
            size = record_bytes_max(payload, None, headers, name)
            room = _room(partition)
            if size > room:
                self._answers.refuse(partition, message, Failure.TOO_LARGE, f"{size} bytes")
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

    def _append(self, partition: Partition, group: _Group) -> None:
        def done(outcome: RecordsAppended | TidelogError) -> None:
            self._inflight -= group.records.bytes
            if self._paused and self._inflight <= INFLIGHT_BYTES_MAX // 2:
                self._paused = False
                self._connection.resume_reading()
            self._answers.answer(partition, group.replies, outcome)

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


class _Group(NamedTuple):
    """Messages of one partition that are appended together."""

    records: RecordColumns
    replies: list[bytes | None]


def _room(partition: Partition) -> int:
    """Bytes of records that fit into one batch."""
    return partition.limits.batch_bytes_max - BATCH_OVERHEAD_BYTES
