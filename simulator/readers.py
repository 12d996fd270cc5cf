"""Simulated readers: they read from a position on, go on for ever, and are told of truncations (R13, R15)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from simulator.broker import Broker
from simulator.clients import TIMEOUT_US, Client
from simulator.mirror import chain_of
from simulator.old_network import Network
from simulator.replica import Key
from simulator.world import MS, World
from tidelog.errors import DataCorrupt, LogTruncated, NotLeader, OffsetOutOfRange, TidelogError
from tidelog.history import History, Read
from tidelog.records import BatchHeader, decode_batch, split_batches
from tidelog_broker.core.replication.positions import check_position

FETCH_BYTES: Final = 16 << 10
LAST_READER: Final = 1_000_000
"""The one that reads everything when all is over."""


@lru_cache(maxsize=100_000)
def _stamp_of(data: bytes) -> tuple[int, int]:
    value = decode_batch(data).column("value")[0].as_py()
    return int.from_bytes(value[4:8], "little"), int.from_bytes(value[8:16], "little")


class SimReader(Client):
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
        self._chain: int | None = 0
        """Of what was read so far; None: it began somewhere."""
        self._asked = 0
        world.after(self._rng.randint(1, 50 * MS), self._ask)

    def _ask(self) -> None:
        self._asked += 1
        asked, target = self._asked, self._leader
        broker = self._brokers[target]
        offset, epoch, chain = self.offset, self._epoch, self._chain

        floor = broker.checks.truth(self._key).acknowledged

        def deliver() -> None:
            replica = broker.replicas.get(self._key)
            if replica is not None:
                replica.latest(floor)
            found = fetch(broker, self._key, offset, epoch, chain)
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
        self.offset, self._epoch, self._chain = offset, None, None
        self._history.rewind(self.name, self._partition)

    def _read(self, data: bytes) -> None:
        for header, raw in split_batches(data):
            if header.next_offset <= self.offset:
                continue
            self._history.reads.append(
                _seen(self.name, self._partition, header, raw.to_pybytes(), self.offset)
            )
            whole = header.base_offset == self.offset and self._chain is not None
            self._chain = chain_of(self._chain or 0, header) if whole else None
            self.offset, self._epoch = header.next_offset, header.leader_epoch


def _seen(reader: int, partition: int, header: BatchHeader, raw: bytes, offset: int) -> Read:
    """The records of a batch from `offset` on, as somebody read them."""
    producer, number = _stamp_of(raw)
    skipped = max(0, offset - header.base_offset)
    return Read(
        reader,
        partition,
        header.base_offset + skipped,
        producer,
        number + skipped,
        header.record_count - skipped,
    )


def read_all(history: History, broker: Broker, key: Key, partition: int) -> None:
    """What a reader sees that begins when all is over, and reads to the end."""
    log = broker.replicas[key].log
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = log.read(offset, FETCH_BYTES, log.end_offset)
        assert chunk is not None, f"offset {offset} of {log!r} cannot be read"
        for header, raw in split_batches(b"".join(bytes(part) for part in chunk.parts)):
            if header.next_offset > offset:
                history.reads.append(_seen(LAST_READER, partition, header, raw.to_pybytes(), offset))
        offset = chunk.next_offset


def fetch(
    broker: Broker, key: Key, offset: int, epoch: int | None, chain: int | None
) -> bytes | TidelogError:
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
        broker.checks.mark(f"{'2c' if isinstance(error, DataCorrupt) else 'R13'} {error.code}")
        return error
    data = b"" if chunk is None else b"".join(bytes(part) for part in chunk.parts)
    broker.checks.given(replica, data)
    if data:
        broker.checks.read(replica, offset, chain)
    return data
