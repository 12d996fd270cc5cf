"""Simulated producers and readers, and the history that they leave (`tidelog.history`)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from simulator.broker import T0_US, Broker
from simulator.network import Network
from simulator.replica import Key, Produced
from simulator.world import MS, World
from tidelog.errors import (
    DataCorrupt,
    LogTruncated,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TidelogError,
    UnknownProducer,
)
from tidelog.history import History, Outcome, Read, Write, stamp
from tidelog.history import Producer as HistoryProducer
from tidelog.records import NO_PRODUCER_ID, BatchHeader, decode_batch, encode_batch, schema_of, split_batches
from tidelog.records.schema import Columns
from tidelog_broker.core.replication.positions import check_position
from tidelog_broker.storage.log import AppendItem

TIMEOUT_US: Final = 800 * MS
ATTEMPTS_MAX: Final = 12
"""Of one batch; then its outcome is what it is."""
WINDOW: Final = 3
FETCH_BYTES: Final = 16 << 10
LAST_READER: Final = 1_000_000
"""The one that reads everything when all is over."""


def batch(producer: int, number: int, *, producer_id: int, sequence: int, size: int) -> AppendItem:
    """One record that says who sent it."""
    schema = schema_of(Columns.NONE)
    columns = {"value": [stamp(producer, number, size)], "timestamp": [T0_US]}
    data = encode_batch(
        pa.record_batch([pa.array(columns[n], schema.field(n).type) for n in schema.names], schema=schema),
        producer_id=producer_id,
        base_sequence=sequence,
    )
    return AppendItem(data, BatchHeader.unpack(data))


@dataclass
class _Sending:
    number: int
    item: AppendItem
    sequence: int
    attempts: int = 0
    doubtful: bool = False
    """An attempt may have landed."""


class _Client:
    """Somebody at an address of its own, who works on one partition."""

    def __init__(
        self,
        world: World,
        network: Network,
        brokers: dict[int, Broker],
        history: History,
        address: int,
        key: Key,
        partition: int,
        *,
        pause_us: int,
    ) -> None:
        self._world = world
        self._network = network
        self._brokers = brokers
        self._history = history
        self._address = address
        self.name = -address
        """In the history."""
        self._key = key
        self._partition = partition
        self._pause_us = pause_us
        self._rng: random.Random = world.rng_of(f"client {address}")
        self._leader = self._rng.choice(sorted(brokers))
        """Whom it asks next."""


class SimProducer(_Client):
    """Sends numbered records to one partition, as fast as it is told, until it is stopped."""

    def __init__(
        self,
        world: World,
        network: Network,
        brokers: dict[int, Broker],
        history: History,
        address: int,
        key: Key,
        partition: int,
        *,
        idempotent: bool,
        pause_us: int,
        producer_ids: Callable[[], int],
        acks_all: bool = True,
    ) -> None:
        super().__init__(world, network, brokers, history, address, key, partition, pause_us=pause_us)
        self._idempotent = idempotent
        self._acks_all = acks_all
        self._producer_ids = producer_ids
        self._number = 0
        self._sequence = 0
        self._producer_id = producer_ids() if idempotent else NO_PRODUCER_ID
        self._window: deque[_Sending] = deque()
        self._round = 0
        """Counts the times that sending began anew; answers of earlier ones say nothing any more."""
        self.stopped = False
        self.acknowledged = 0
        history.producers[self.name] = HistoryProducer(f"producer {self.name}", ordered=idempotent)
        world.after(self._rng.randint(1, 50 * MS), self._next)

    @property
    def idle(self) -> bool:
        return not self._window

    def _next(self) -> None:
        if not self.stopped:
            if len(self._window) < (WINDOW if self._idempotent else 1):
                size = self._rng.choice((24, 60, 400))
                sending = _Sending(
                    self._number,
                    batch(
                        self.name,
                        self._number,
                        producer_id=self._producer_id,
                        sequence=self._sequence if self._idempotent else 0,
                        size=size,
                    ),
                    self._sequence,
                )
                self._number += 1
                self._sequence += 1
                self._window.append(sending)
                self._send(sending)
            self._world.after(self._rng.randint(self._pause_us // 2, self._pause_us * 2), self._next)

    def _send(self, sending: _Sending) -> None:
        sending.attempts += 1
        target, attempt, round_ = self._leader, sending.attempts, self._round
        broker = self._brokers[target]
        settled = [False]

        def deliver() -> None:
            replica = broker.replicas.get(self._key)
            if replica is None:
                answer(Produced(broker.not_leader(self._key)))
            else:
                replica.produce(sending.item, answer, acks_all=self._acks_all)

        def answer(produced: Produced) -> None:
            self._network.send(target, self._address, lambda: came(produced), whole=True)

        def came(produced: Produced) -> None:
            if not settled[0]:
                settled[0] = True
                self._came(sending, attempt, round_, produced)

        def late() -> None:
            if not settled[0]:
                settled[0] = True
                self._came(sending, attempt, round_, None)

        self._network.send(self._address, target, deliver, whole=True)
        self._world.after(TIMEOUT_US, late)

    def _came(self, sending: _Sending, attempt: int, round_: int, produced: Produced | None) -> None:
        if sending not in self._window:
            return
        if produced is None or not produced.definite:
            sending.doubtful = True
        if produced is not None and not isinstance(produced.outcome, TidelogError):
            # Committed: true whichever attempt it answers.
            if self._acks_all:
                self._settle(sending, Outcome.ACKNOWLEDGED, produced.outcome.base_offset)
            else:
                # The leader alone has it: nobody promised more.
                self._settle(sending, Outcome.UNKNOWN, None)
            return
        if round_ != self._round or attempt != sending.attempts:
            return
        error = None if produced is None else produced.outcome
        if isinstance(error, NotLeader) and "leader" in error.details:
            self._leader = int(error.details["leader"])
        else:
            self._leader = self._rng.choice(sorted(self._brokers))
        lost = isinstance(error, UnknownProducer | OutOfOrderSequence)
        if lost and self._window[0] is not sending:
            # Of the batches before it one is missing; they are sent again together.
            self._again()
        elif lost or not self._idempotent or self.stopped or sending.attempts >= ATTEMPTS_MAX:
            self._give_up()
        else:
            self._again()

    def _settle(self, sending: _Sending, outcome: Outcome, offset: int | None) -> None:
        self._window.remove(sending)
        self._history.writes.append(Write(self.name, self._partition, sending.number, 1, outcome, offset))
        if outcome is Outcome.ACKNOWLEDGED:
            self.acknowledged += 1

    def _give_up(self) -> None:
        """What is not known by now stays so; the producer begins anew, as another one."""
        self._round += 1
        for sending in list(self._window):
            # Of a later batch an attempt may be on its way, too.
            doubtful = sending.doubtful or sending.attempts > 1 or self._window[0] is not sending
            refused = not doubtful and not self._idempotent and sending.attempts == 1
            self._settle(sending, Outcome.REFUSED if refused else Outcome.UNKNOWN, None)
        self._sequence = 0
        if self._idempotent:
            self._producer_id = self._producer_ids()
            # What is still on its way under the old one may land behind what comes now.
            self._history.producers[self.name] = HistoryProducer(f"producer {self.name}", ordered=False)

    def _again(self) -> None:
        """From the first batch that is not settled, one after the other, under the same sequences."""
        self._round += 1
        round_ = self._round

        def resend() -> None:
            if round_ == self._round:
                for sending in list(self._window):
                    self._send(sending)

        self._world.after(self._rng.randint(5 * MS, 60 * MS), resend)


@lru_cache(maxsize=100_000)
def _stamp_of(data: bytes) -> tuple[int, int]:
    value = decode_batch(data).column("value")[0].as_py()
    return int.from_bytes(value[4:8], "little"), int.from_bytes(value[8:16], "little")


class SimReader(_Client):
    """Reads one partition from its start and goes on for ever, at whoever leads."""

    def __init__(
        self,
        world: World,
        network: Network,
        brokers: dict[int, Broker],
        history: History,
        address: int,
        key: Key,
        partition: int,
        *,
        pause_us: int,
    ) -> None:
        super().__init__(world, network, brokers, history, address, key, partition, pause_us=pause_us)
        self.offset = 0
        self._epoch: int | None = None
        self._asked = 0
        world.after(self._rng.randint(1, 50 * MS), self._ask)

    def _ask(self) -> None:
        self._asked += 1
        asked, target = self._asked, self._leader
        broker = self._brokers[target]
        offset, epoch = self.offset, self._epoch

        floor = broker.checks.truth(self._key).acknowledged

        def deliver() -> None:
            replica = broker.replicas.get(self._key)
            if replica is not None:
                replica.latest(floor)
            found = fetch(broker, self._key, offset, epoch)
            self._network.send(target, self._address, lambda: came(found), whole=True)

        def came(found: bytes | TidelogError) -> None:
            if asked == self._asked:
                self._came(found)
                self._world.after(self._rng.randint(self._pause_us // 2, self._pause_us), self._ask)

        def late() -> None:
            if asked == self._asked:
                self._leader = self._rng.choice(sorted(self._brokers))
                self._ask()

        self._network.send(self._address, target, deliver, whole=True)
        self._world.after(TIMEOUT_US, late)

    def _came(self, found: bytes | TidelogError) -> None:
        match found:
            case NotLeader():
                if "leader" in found.details:
                    self._leader = int(found.details["leader"])
                else:
                    self._leader = self._rng.choice(sorted(self._brokers))
            case LogTruncated():
                self._jump(int(found.details["divergence_offset"]))
            case OffsetOutOfRange():
                self._jump(int(found.details["log_start_offset"]))
            case TidelogError():
                pass
            case _:
                self._read(found)

    def _jump(self, offset: int) -> None:
        self.offset, self._epoch = offset, None
        self._history.rewind(self.name, self._partition)

    def _read(self, data: bytes) -> None:
        for header, raw in split_batches(data):
            if header.base_offset < self.offset:
                continue
            producer, number = _stamp_of(raw.to_pybytes())
            self._history.reads.append(
                Read(self.name, self._partition, header.base_offset, producer, number, header.record_count)
            )
            self.offset, self._epoch = header.next_offset, header.leader_epoch


def read_all(history: History, broker: Broker, key: Key, partition: int) -> None:
    """What a reader sees that begins when all is over, and reads to the end."""
    log = broker.replicas[key].log
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = log.read(offset, FETCH_BYTES, log.end_offset)
        assert chunk is not None, f"offset {offset} of {log!r} cannot be read"
        for header, raw in split_batches(b"".join(bytes(part) for part in chunk.parts)):
            if header.base_offset >= offset:
                producer, number = _stamp_of(raw.to_pybytes())
                history.reads.append(
                    Read(LAST_READER, partition, header.base_offset, producer, number, header.record_count)
                )
        offset = chunk.next_offset


def fetch(broker: Broker, key: Key, offset: int, epoch: int | None) -> bytes | TidelogError:
    """What a broker answers to a reader at a position (R13, R15)."""
    replica = broker.replicas.get(key)
    if replica is None or not replica.leads:
        return broker.not_leader(key)
    log = replica.log
    first = next(iter(log.epochs), None)
    try:
        check_position(
            offset,
            epoch,
            first=first,
            end_of_epoch=None if epoch is None else log.epochs.end_of(epoch, log.end_offset),
            log_start_offset=log.start_offset,
            log_end_offset=log.end_offset,
        )
        chunk = log.read(offset, FETCH_BYTES, replica.high_watermark)
    except (LogTruncated, OffsetOutOfRange, DataCorrupt) as error:
        broker.checks.mark(f"R13 {error.code}")
        return error
    return b"" if chunk is None else b"".join(bytes(part) for part in chunk.parts)
