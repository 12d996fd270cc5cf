"""A leader's end of one connection: the requests of followers on the other broker, and their answers.

Followers that can get batches wait in a queue and take turns. Batches for one follower at a time are
read and sent, and only while the connection takes more. So the data that waits to be sent is bounded by
the connection's buffer and one answer, however slow the other end reads (docs/replication.md).
Small answers are sent at once: a follower has only one outstanding request.

Neighbours: `links` has the connections, `replica` the leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol

import structlog

from tidelog.errors import Stopping, TidelogError
from tidelog_broker.core.replication.effects import SendBatches
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import (
    FromFollower,
    FromLeader,
    RangeHeld,
    RangeWanted,
    Refusal,
    Refused,
)
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.errors import ProtocolBroken
from tidelog_broker.peers.hello import Identity
from tidelog_broker.replication.replica import Key, Replica
from tidelog_broker.replication.wire import Address, encode, from_follower
from tidelog_broker.storage.segments.reading import Chunk

log = structlog.get_logger(__name__)

ANSWER_BYTES_MAX: Final = 1 << 20
"""About how many bytes of batches an answer has at most; one batch of any size may always be sent."""


class FeedOwner(Protocol):
    """The set of connections that a feed belongs to, as the feed calls it. `links` implements it."""

    def feature_level(self) -> int:
        """The feature level that all brokers of the cluster understand."""

    def feed_opened(self, feed: ReplicaFeed, connection: PeerConnection) -> None: ...

    def feed_closed(self, feed: ReplicaFeed, connection: PeerConnection) -> None: ...

    def asked(self, feed: ReplicaFeed, key: Key, peer: Identity, message: FromFollower) -> None:
        """A follower sent its position or its durable offset."""

    def range_came(self, feed: ReplicaFeed, key: Key, broker: int, message: RangeWanted | RangeHeld) -> None:
        """A follower sent a message about a damaged range."""


class _Turn(NamedTuple):
    replica: Replica
    role: LeaderPartition
    number: int
    offset: int
    end: int


class Pace:
    """Limits the batches sent over one connection to an average number of bytes per second."""

    def __init__(self, bytes_per_second: Callable[[], int], now: float) -> None:
        """`bytes_per_second` returns the current limit; call `settle` before that limit changes."""
        self._rate = bytes_per_second
        self._owed = 0.0
        """Bytes that were sent ahead of the limit."""
        self._settled_at = now
        """Seconds, on the event loop's clock."""

    def settle(self, now: float) -> None:
        self._owed = max(0.0, self._owed - (now - self._settled_at) * self._rate())
        self._settled_at = now

    def took(self, size: int, now: float) -> None:
        self.settle(now)
        self._owed += size

    def pause(self, now: float) -> float:
        """Seconds until more bytes may be sent."""
        self.settle(now)
        return self._owed / self._rate()


class ReplicaFeed:
    """One follower's broker, for the leaders here. Receives from a `peers.connection.PeerConnection`."""

    def __init__(self, owner: FeedOwner, threads: Executor, pace: Pace | None = None) -> None:
        """`threads` read batches that are not in memory. `pace` None: as fast as the connection allows."""
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._threads = threads
        self._pace = pace
        self._line: dict[Key, _Turn] = {}
        """Followers that wait for batches, the longest waiting first."""
        self._reading = False
        self._paused: asyncio.TimerHandle | None = None
        self._numbers: dict[Key, int] = {}
        """The role number in the newest request of each follower."""
        self.connection: PeerConnection | None = None
        """None: not open yet, or closed."""

    def __repr__(self) -> str:
        return f"<ReplicaFeed {self.connection!r} followers={len(self._numbers)} waiting={len(self._line)}>"

    @property
    def waiting(self) -> int:
        """Number of followers that wait for batches."""
        return len(self._line)

    # --- the connection

    def opened(self, connection: PeerConnection) -> None:
        self.connection = connection
        self._owner.feed_opened(self, connection)

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        if self.connection is not connection:
            return
        try:
            address, message = from_follower(header, payload)
        except ProtocolBroken as error:
            connection.abort(str(error))
            return
        key = (address.stream_id, address.partition)
        if isinstance(message, RangeWanted | RangeHeld):
            if self._numbers.get(key) == address.number:
                self._owner.range_came(self, key, connection.peer.broker_id, message)
            return
        self._numbers[key] = address.number
        self._owner.asked(self, key, connection.peer, message)

    def writable(self, connection: PeerConnection) -> None:
        self.go_on()

    def closed(self, connection: PeerConnection, reason: str) -> None:
        self.connection = None
        self._line.clear()
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        self._owner.feed_closed(self, connection)

    # --- answers

    def answer(self, key: Key, message: FromLeader) -> None:
        if self.connection is not None and key in self._numbers:
            level = self._owner.feature_level()
            self.connection.send(encode(Address(*key, self._numbers[key]), message, feature_level=level))

    def send_range(self, key: Key, message: RangeWanted | RangeHeld) -> bool:
        """Sends batches for a damaged range, or a request for them; returns whether it was sent."""
        connection, number = self.connection, self._numbers.get(key)
        if connection is None or number is None or not connection.writable:
            return False
        payload = (message.data,) if isinstance(message, RangeHeld) else ()
        connection.send(encode(Address(*key, number), message), *payload)
        return True

    def send_batches(self, replica: Replica, wanted: SendBatches) -> None:
        role = replica.role
        assert isinstance(role, LeaderPartition)
        number = self._numbers.get(replica.key)
        if self.connection is None or number is None:
            return
        self._line[replica.key] = _Turn(replica, role, number, wanted.offset, wanted.end)
        self.go_on()

    def forget(self, key: Key) -> None:
        self._line.pop(key, None)
        self._numbers.pop(key, None)

    def go_on(self) -> None:
        """Sends batches while a follower waits and the connection takes more."""
        while self._line and not self._reading and self.connection is not None and self.connection.writable:
            if self._paused is not None or self._must_pause():
                return
            turn = self._line.pop(next(iter(self._line)))
            if not self._stands(turn):
                continue
            chunk = turn.replica.log.reader.read_cached(turn.offset, ANSWER_BYTES_MAX, turn.end)
            if chunk is not None:
                self._send(turn, chunk)
            else:
                self._read(turn)

    def _must_pause(self) -> bool:
        pause = 0.0 if self._pace is None else self._pace.pause(self._loop.time())
        if not pause:
            return False
        self._paused = self._loop.call_later(pause, self._pause_over)
        return True

    def _pause_over(self) -> None:
        self._paused = None
        self.go_on()

    def settle_pace(self) -> None:
        """Prepares for another pace, and ends a running pause; call `go_on` once the new pace is set."""
        if self._pace is not None:
            self._pace.settle(self._loop.time())
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None

    def _stands(self, turn: _Turn) -> bool:
        """Whether the leader's role and the follower's request are still the same."""
        return turn.replica.role is turn.role and self._numbers.get(turn.replica.key) == turn.number

    def _read(self, turn: _Turn) -> None:
        self._reading = True
        reading = self._loop.run_in_executor(
            self._threads, turn.replica.log.reader.read, turn.offset, ANSWER_BYTES_MAX, turn.end
        )
        reading.add_done_callback(lambda done: self._was_read(turn, done))

    def _was_read(self, turn: _Turn, done: asyncio.Future[Chunk | None]) -> None:
        self._reading = False
        error = None if done.cancelled() else done.exception()
        if not done.cancelled() and self.connection is not None and self._stands(turn):
            chunk = None if error is not None else done.result()
            if chunk is not None:
                self._send(turn, chunk)
            elif not isinstance(error, Stopping):
                if not isinstance(error, TidelogError | OSError | None):
                    log.error("a read for a follower failed", partition=repr(turn.replica), exc_info=error)
                log.warning(
                    "batches for a follower could not be read", partition=repr(turn.replica), error=str(error)
                )
                self.answer(turn.replica.key, Refused(Refusal.DAMAGED, turn.role.leader_epoch))
        self.go_on()

    def _send(self, turn: _Turn, chunk: Chunk) -> None:
        assert self.connection is not None
        message = turn.role.batches(turn.offset, b"", chunk.next_offset)
        self.connection.send(encode(Address(*turn.replica.key, turn.number), message), *chunk.parts)
        if self._pace is not None:
            self._pace.took(chunk.bytes, self._loop.time())
