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
    """Compares answers to clients with what is committed."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._producers: dict[int, None] = {}
        """The producer ids that brokers gave to producers."""

    def acknowledged(self, broker: int, key: Key, end: int) -> None:
        """A broker tells a producer that all records below `end` are committed, its batch included."""
        truth = self.truth(key)
        self.mark("R3 acknowledged")
        require(
            end <= truth.committed.end,
            "I8",
            f"partition {key[1]}: broker {broker} acknowledges records up to offset {end}; only those below "
            f"{truth.committed.end} are committed",
        )
        truth.acknowledged = max(truth.acknowledged, end)

    def held(self, replica: Replica, end: int) -> None:
        """A leader tells a producer that it has all records below `end` on its disk (R7)."""
        log = replica.log
        require(
            not replica.leads or not replica.fsync or log.durable_offset >= end,
            "R7",
            f"{replica.name}: the leader, broker {replica.node.id}, acknowledges records up to offset {end}; "
            f"only those below {log.durable_offset} are on its disk",
        )

    def deleted(self, node: Node, key: Key, start_offset: int) -> None:
        """A leader tells a client that all records below are deleted on all members of the ISR (R11)."""
        self.mark("R11 deleted")
        truth = self.truth(key)
        led_in = (epoch for epoch, led in truth.leaders.items() if led == Led(node.id, node.run))
        # A forced recovery may have forgotten that it led (M2a).
        epoch = max(led_in, default=0)
        truth.deleted_in[epoch] = max(truth.deleted_in.get(epoch, 0), start_offset)
        self.members(key)

    def producer_given(self, producer_id: int) -> None:
        """A producer gets its id, which no other producer may have (R8)."""
        require(producer_id not in self._producers, "R8", f"two producers get the producer id {producer_id}")
        self._producers[producer_id] = None

    def counted(self, key: Key, header: BatchHeader, receipt: log_pb2.ProduceReceipt) -> None:
        """A receipt must count the records that were sent."""
        records = receipt.last_offset - receipt.base_offset + 1
        require(
            records == header.record_count,
            "I8",
            f"partition {key[1]}: the receipt of a batch of {header.record_count} records counts {records}",
        )

    def expectation_met(
        self, key: Key, header: BatchHeader, receipt: log_pb2.ProduceReceipt, expected: int
    ) -> None:
        """A conditional append was appended, and is no repeat (R9)."""
        self.mark("R9 met")
        require(
            receipt.base_offset == expected,
            "R9",
            f"partition {key[1]}: a conditional append that expects offset {expected} was appended at offset "
            f"{receipt.base_offset}",
        )
        sender = (header.producer_id, header.base_sequence)
        self.truth(key).conditional[sender] = (receipt.leader_epoch, receipt.base_offset)

    def expectation_refused(self, replica: Replica, header: BatchHeader) -> None:
        """A conditional append is refused. It must not be the repeat of one that this log has (R9)."""
        at = self.truth(replica.key).conditional.get((header.producer_id, header.base_sequence))
        if at is None or header.producer_id == NO_PRODUCER_ID:
            return
        epoch, base = at
        there = self.copy(replica).mirror.between(base, base + 1)
        require(
            not any(link.base == base and link.epoch == epoch for link in there),
            "R9",
            f"{replica.name}: the repeat of a conditional append is refused; the log has that append at "
            f"offset {base}",
        )

    def read(self, broker: int, key: Key, end: int) -> None:
        """A broker gives records below `end` to a reader."""
        truth = self.truth(key)
        require(
            end <= truth.committed.end,
            "I7",
            f"partition {key[1]}: broker {broker} gives a reader records up to offset {end}; only those "
            f"below {truth.committed.end} are committed",
        )

    def told_latest(self, broker: int, key: Key, leader_epoch: int, offset: int, floor: int) -> None:
        """R15: the end that a leader names includes all records acknowledged before the request (`floor`)."""
        placed = self.image.partition(*key)
        if placed is None or placed.leader_epoch != leader_epoch:
            return  # The leader is deposed, and does not know it yet (docs/replication.md, Not covered).
        self.mark("R15 latest")
        require(
            offset >= min(floor, self.truth(key).committed.end),
            "I12",
            f"partition {key[1]}: broker {broker} tells a client that the end is offset {offset}; records "
            f"below {floor} were acknowledged before the request",
        )

    def refused(self, code: str) -> None:
        """A producer gets an error."""
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
        require(code != "INTERNAL", "I19", "a client gets an internal error, which is a bug of the broker")

    def reads_on(self, reader: int, key: Key, last: Link | None, epoch: int, base: int) -> Link | None:
        """R13: the next batch of a reader follows its last batch in the same log, or the reader gets an
        error.

        Returns the batch of this epoch and offset; None: the reader gets only a part of one.
        """
        link = self.truth(key).batches.get((epoch, base))
        if last is not None:
            follows = link is not None and (link.base, link.before) == (last.next, last.chain)
            require(
                follows,
                "R13",
                f"partition {key[1]}: reader {reader} gets the batch of epoch {epoch} at offset {base}, "
                f"which does not follow its last batch (epoch {last.epoch}, offset {last.base}), and gets "
                "no error",
            )
        return link

    def unread(self, code: str) -> None:
        """A reader gets an error."""
        self._is_foreseen(code)
        code = code.removeprefix("ERROR_CODE_")
        self.mark(f"{'2c' if code == 'DATA_CORRUPT' else 'R13'} reader told {code}")
