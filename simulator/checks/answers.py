"""Checks of what brokers answer clients: acknowledgements, records, offsets, errors (I7, I8, I12, I19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks.truth import Knowledge, Led, Setup, require
from tidelog.records import NO_PRODUCER_ID, BatchHeader
from tidelog_proto import log_pb2

if TYPE_CHECKING:
    from simulator.node import Key, Node, Replica
    from simulator.watch.mirror import Link


class AnswerChecks(Knowledge):
    """What clients are told, against what is committed."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._producers: dict[int, None] = {}
        """Ids that were given out."""

    def acknowledged(self, broker: int, key: Key, end: int) -> None:
        """A producer is told that everything below `end` is committed, its batch with it."""
        truth = self.truth(key)
        self.mark("R3 acknowledged")
        require(
            end <= truth.committed.end,
            "I8",
            f"partition {key[1]}: broker {broker} acknowledges up to {end}, "
            f"committed is {truth.committed.end}",
        )
        truth.acknowledged = max(truth.acknowledged, end)

    def held(self, replica: Replica, end: int) -> None:
        """A producer is told that its leader has everything below `end` on its disk (R7)."""
        log = replica.log
        require(
            not replica.leads or not replica.fsync or log.durable_offset >= end,
            "R7",
            f"{replica.name}: broker {replica.node.id} acknowledges up to {end}, as its leader; "
            f"{log.durable_offset} is on its disk",
        )

    def deleted(self, node: Node, key: Key, start_offset: int) -> None:
        """This leader tells somebody that everything below is deleted on all members of the ISR (R11)."""
        self.mark("R11 deleted")
        truth = self.truth(key)
        led_in = (epoch for epoch, led in truth.leaders.items() if led == Led(node.id, node.run))
        # A forced recovery may have forgotten that it led (M2a).
        epoch = max(led_in, default=0)
        truth.deleted_in[epoch] = max(truth.deleted_in.get(epoch, 0), start_offset)
        self.members(key)

    def producer_given(self, producer_id: int) -> None:
        """A producer is given its id: nobody else has it (R8)."""
        require(producer_id not in self._producers, "R8", f"the producer id {producer_id} is given again")
        self._producers[producer_id] = None

    def counted(self, key: Key, header: BatchHeader, receipt: log_pb2.ProduceReceipt) -> None:
        """A receipt is of as many records as were sent."""
        records = receipt.last_offset - receipt.base_offset + 1
        require(
            records == header.record_count,
            "I8",
            f"partition {key[1]}: {header.record_count} records were sent, {records} are acknowledged",
        )

    def expectation_met(
        self, key: Key, header: BatchHeader, receipt: log_pb2.ProduceReceipt, expected: int
    ) -> None:
        """A conditional append was carried out, and is no repeat (R9)."""
        self.mark("R9 met")
        require(
            receipt.base_offset == expected,
            "R9",
            f"partition {key[1]}: appended at {receipt.base_offset}, expected was {expected}",
        )
        sender = (header.producer_id, header.base_sequence)
        self.truth(key).conditional[sender] = (receipt.leader_epoch, receipt.base_offset)

    def expectation_refused(self, replica: Replica, header: BatchHeader) -> None:
        """A conditional append is refused: it is not the repeat of one that is in this log (R9)."""
        at = self.truth(replica.key).conditional.get((header.producer_id, header.base_sequence))
        if at is None or header.producer_id == NO_PRODUCER_ID:
            return
        epoch, base = at
        there = self.copy(replica).mirror.between(base, base + 1)
        require(
            not any(link.base == base and link.epoch == epoch for link in there),
            "R9",
            f"{replica.name}: a repeat of what met its offset, {base}, is refused",
        )

    def read(self, broker: int, key: Key, end: int) -> None:
        """A reader is given records up to `end`."""
        truth = self.truth(key)
        require(
            end <= truth.committed.end,
            "I7",
            f"partition {key[1]}: broker {broker} has a reader see up to {end}, "
            f"committed is {truth.committed.end}",
        )

    def told_latest(self, broker: int, key: Key, leader_epoch: int, offset: int, floor: int) -> None:
        """R15: a leader that names the end knows of all that was acknowledged before it was asked."""
        placed = self.image.partition(*key)
        if placed is None or placed.leader_epoch != leader_epoch:
            return  # Deposed, and does not know it yet (docs/replication.md, Not covered).
        self.mark("R15 latest")
        require(
            offset >= min(floor, self.truth(key).committed.end),
            "I12",
            f"partition {key[1]}: broker {broker} says that the end is {offset}; {floor} is acknowledged",
        )

    def refused(self, code: str) -> None:
        """A producer is told of an error."""
        self._is_foreseen(code)
        marks = {
            "NOT_ENOUGH_REPLICAS": "R7 too few in sync",
            "UNKNOWN_PRODUCER": "R8 unknown producer",
            "OUT_OF_ORDER_SEQUENCE": "R8 out of order",
            "DUPLICATE_SEQUENCE": "R8 duplicate sequence",
            "UNEXPECTED_OFFSET": "R9 refused",
            "DISK_FULL": "4.4 refused, the disk is full",
        }
        self.mark(marks.get(code.removeprefix("ERROR_CODE_"), f"answered {code}"))

    @staticmethod
    def _is_foreseen(code: str) -> None:
        require(code != "INTERNAL", "I19", "a client is told of an error that nobody foresaw")

    def reads_on(self, reader: int, key: Key, last: Link | None, epoch: int, base: int) -> Link | None:
        """R13: what a reader gets next follows what it got last, in one and the same log. The batch of this
        epoch and offset; None: it gets a part of one only."""
        link = self.truth(key).batches.get((epoch, base))
        if last is not None:
            follows = link is not None and (link.base, link.before) == (last.next, last.chain)
            require(
                follows,
                "R13",
                f"partition {key[1]}: nobody told reader {reader}, and after the batch of epoch {last.epoch} "
                f"at {last.base} it gets one of epoch {epoch} at {base}, which does not follow",
            )
        return link

    def unread(self, code: str) -> None:
        """A reader is told of an error."""
        self._is_foreseen(code)
        code = code.removeprefix("ERROR_CODE_")
        self.mark(f"{'2c' if code == 'DATA_CORRUPT' else 'R13'} reader told {code}")
