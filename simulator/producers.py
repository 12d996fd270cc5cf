"""Simulated producers: plain, idempotent and conditional ones, and what they make of each answer.

What a producer was told goes into the history: acknowledged, refused (certainly not there), or unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

from simulator.broker import T0_US, Broker
from simulator.clients import TIMEOUT_US, Client
from simulator.old_network import Network
from simulator.replica import Key, Produced
from simulator.world import MS, World
from tidelog.errors import (
    DiskFull,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    TidelogError,
    UnexpectedOffset,
    UnknownProducer,
)
from tidelog.history import History, Outcome, Write, stamp
from tidelog.history import Producer as HistoryProducer
from tidelog.records import NO_PRODUCER_ID, BatchHeader, encode_batch, schema_of
from tidelog.records.schema import Columns
from tidelog_broker.storage.log import AppendItem

ATTEMPTS_MAX: Final = 12
"""Of one batch; then its outcome is what it is."""
WINDOW: Final = 3
RECORDS_MAX: Final = 4
"""Of one batch."""


def batch(producer: int, number: int, records: int, *, producer_id: int, sequence: int, size: int) -> bytes:
    """Records that say who sent them, numbered from `number` on."""
    schema = schema_of(Columns.NONE)
    values = [stamp(producer, number + index, size) for index in range(records)]
    columns = {"value": values, "timestamp": [T0_US] * records}
    return encode_batch(
        pa.record_batch([pa.array(columns[n], schema.field(n).type) for n in schema.names], schema=schema),
        producer_id=producer_id,
        base_sequence=sequence,
    )


class Kind(Enum):
    """What a producer is careful about."""

    PLAIN = "plain"
    IDEMPOTENT = "idempotent"
    CONDITIONAL = "conditional"
    """Idempotent, and each batch names the offset that it expects (R9)."""


@dataclass
class _Sending:
    number: int
    records: int
    item: AppendItem
    sequence: int
    attempts: int = 0
    doubtful: bool = False
    """An attempt may have landed."""


class SimProducer(Client):
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
        kind: Kind,
        pause_us: int,
        producer_ids: Callable[[], int],
        acks_all: bool = True,
    ) -> None:
        super().__init__(world, network, brokers, history, address, key, partition, pause_us=pause_us)
        self._kind = kind
        self._acks_all = acks_all
        self._producer_ids = producer_ids
        self._number = 0
        self._sequence = 0
        self._expected = 0
        """Where a conditional producer believes that the log ends."""
        self._producer_id = producer_ids() if self._idempotent else NO_PRODUCER_ID
        self._window: deque[_Sending] = deque()
        self._round = 0
        """Counts the times that sending began anew; answers of earlier ones say nothing any more."""
        self.stopped = False
        self.acknowledged = 0
        history.producers[self.name] = HistoryProducer(f"producer {self.name}", ordered=self._idempotent)
        world.after(self._rng.randint(1, 50 * MS), self._next)

    @property
    def _idempotent(self) -> bool:
        return self._kind is not Kind.PLAIN

    @property
    def idle(self) -> bool:
        return not self._window

    def _next(self) -> None:
        if not self.stopped:
            if len(self._window) < (WINDOW if self._kind is Kind.IDEMPOTENT else 1):
                sending = self._new()
                self._window.append(sending)
                self._send(sending)
            self._world.after(self._rng.randint(self._pause_us // 2, self._pause_us * 2), self._next)

    def _new(self) -> _Sending:
        number, sequence, records = self._number, self._sequence, self._rng.choice((1, 1, 1, 2, RECORDS_MAX))
        data = batch(
            self.name,
            number,
            records,
            producer_id=self._producer_id,
            sequence=sequence if self._idempotent else 0,
            size=self._rng.choice((24, 60, 400)),
        )
        expected = self._expected if self._kind is Kind.CONDITIONAL else None
        self._number += records
        self._sequence += records
        return _Sending(number, records, AppendItem(data, BatchHeader.unpack(data), expected), sequence)

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
        elif not isinstance(error, UnexpectedOffset | DiskFull | NotEnoughReplicas):
            self._leader = self._rng.choice(sorted(self._brokers))
        if isinstance(error, UnexpectedOffset):
            self._expected = int(error.details["log_end_offset"])
            if not sending.doubtful:
                # It is certainly not there, and its sequence is free for another one.
                self._sequence = sending.sequence
                self._settle(sending, Outcome.REFUSED, None)
            else:
                self._give_up()
            return
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
        self._history.writes.append(
            Write(self.name, self._partition, sending.number, sending.records, outcome, offset)
        )
        if outcome is Outcome.ACKNOWLEDGED:
            self.acknowledged += 1
        if offset is not None:
            self._expected = offset + sending.records

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
