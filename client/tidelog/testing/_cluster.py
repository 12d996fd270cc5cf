"""The interface for tests: a cluster in memory, its clients, and the failures that a test can cause."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Final

from tidelog._connecting.broker_channel import BrokerChannel
from tidelog._connecting.framing import FetchAnswer
from tidelog._options import ClientOptions
from tidelog._reading.fetching import FetchState
from tidelog.client import Client
from tidelog.errors import InvalidRequest, TidelogError, Unavailable
from tidelog.model import Position, Record
from tidelog.testing._brokers import MemoryBroker
from tidelog.testing._connection import FakeConnection
from tidelog.testing._faults import Fault, Faults
from tidelog.testing._log import MemoryLog
from tidelog.testing._state import State
from tidelog_proto import log_pb2

BROKERS_MAX: Final = 100


class FakeCluster:
    """Brokers in memory, made by `cluster`. All parts belong to one event loop.

    Its clients are real clients with fake connections. Every change takes effect at once; a client sees it
    as in a real cluster.
    """

    def __init__(self, brokers: int = 3) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise InvalidRequest(f"brokers is {brokers}; it must lie in 1–{BROKERS_MAX}")
        self._state = State(range(brokers))
        self._faults = Faults()
        self._brokers = {number: MemoryBroker(self._state, number, self._faults) for number in range(brokers)}

    def __repr__(self) -> str:
        up = [number for number, broker in self._brokers.items() if broker.up]
        return f"<FakeCluster brokers={len(self._brokers)} up={up} streams={len(self._state.streams)}>"

    @property
    def addresses(self) -> list[str]:
        """The addresses of all brokers. They are not real: only clients of `connect` reach them."""
        return [broker.address for broker in self._brokers.values()]

    def connect(
        self,
        addresses: str | Sequence[str] | None = None,
        *,
        options: ClientOptions | None = None,
        **settings: Any,
    ) -> Client:
        """A client, as `tidelog.connect` makes it; of all brokers, or of those at `addresses`."""
        if options is not None and settings:
            raise InvalidRequest(f"give either `options`, or {', '.join(sorted(settings))}")
        return Client(addresses or self.addresses, options or ClientOptions(**settings), self._dial)

    def _dial(self, address: str) -> BrokerChannel:
        for broker in self._brokers.values():
            if broker.address == address:
                return FakeConnection(broker)
        raise Unavailable(
            f"no broker in memory has the address {address}; the addresses are {', '.join(self.addresses)}"
        )

    # --- state

    def records(self, stream: str, partition: int = 0) -> list[Record]:
        """All records in the log of a partition, from its start."""
        log = self._log(stream, partition)
        state = FetchState(stream, log.stream_id, partition, Position(log.start), None)
        answer = FetchAnswer(log_pb2.FetchResponse(), b"".join(stored.data for stored in log.batches))
        return [record for batch in state.accept(answer) for record in batch.records()]

    def leader(self, stream: str, partition: int = 0) -> int | None:
        """The id of the broker that leads the partition; None: it has no leader."""
        return self._state.partition(stream, partition).leader

    # --- failing calls

    def fail_next(
        self,
        call: str,
        error: TidelogError,
        *,
        landed: bool = False,
        times: int = 1,
        partition: int | None = None,
    ) -> None:
        """Lets the next `times` calls of this kind fail with `error`.

        `call` is the name of an rpc in snake case: produce (each batch counts), fetch (each read of a
        partition counts), offsets, resolve, create_stream, … `ConnectionLost` breaks the connection instead
        of sending an answer. `landed`: the request is executed, and only its answer is lost, as after an
        indefinite error. With `partition`, only batches and reads of this partition count.
        """
        self._faults.plan(call, times=times, partition=partition, fault=Fault(error, landed))
        self._state.notify()

    def delay_next(self, call: str, seconds: float, *, times: int = 1, partition: int | None = None) -> None:
        """Delays the next `times` calls of this kind by `seconds`."""
        self._faults.plan(call, times=times, partition=partition, delay_s=seconds)

    def hold(self, call: str) -> AbstractContextManager[None]:
        """``with fake.hold("produce"):`` holds calls of this kind until the block ends."""
        return self._faults.hold(call)

    def forgive(self) -> None:
        """Cancels the failures and delays of `fail_next` and `delay_next` that have not happened yet."""
        self._faults.clear()

    # --- brokers and leaders

    def stop_broker(self, broker_id: int) -> None:
        """Stops a broker: its connections break, and in-sync replicas on other brokers take over leadership.

        Writes to partitions with fewer than `min_insync_replicas` replicas left fail (`NotEnoughReplicas`).
        """
        broker = self._broker(broker_id)
        broker.go()
        self._state.stop(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Starts a stopped broker; its replicas are in sync again."""
        broker = self._broker(broker_id)
        broker.come_back()
        self._state.start(broker_id)

    def move_leader(self, stream: str, partition: int = 0, *, to: int | None = None) -> int:
        """Makes another replica the leader, in a new leader epoch, as in a handover; returns its broker."""
        now = self._state.partition(stream, partition)
        others = [one for one in now.isr if one != now.leader and self._brokers[one].up]
        if to is None and not others:
            raise InvalidRequest(
                f"{stream}/{partition} has no other in-sync replica to lead; the ISR is {list(now.isr)}"
            )
        leader = self._state.elect(stream, partition, others[0] if to is None else to)
        assert leader is not None
        return leader

    def lose_leader(self, stream: str, partition: int = 0) -> None:
        """Takes the leader away; the partition has none until `elect`."""
        self._state.depose(stream, partition)

    def elect(self, stream: str, partition: int = 0) -> None:
        """Makes an in-sync replica the leader, in a new leader epoch."""
        self._state.elect(stream, partition)

    # --- logs

    def truncate(self, stream: str, partition: int = 0, *, offset: int) -> None:
        """Loses the batches that reach beyond `offset`, as in an unclean election.

        Readers beyond it get `LogTruncated`, or follow their `on_truncated`.
        """
        log = self._log(stream, partition)
        if not log.start <= offset <= log.end:
            raise InvalidRequest(f"offset is {offset}; it must lie in {log.start}–{log.end}")
        log.truncate(offset)
        self._state.elect(stream, partition)

    def expire(self, stream: str, partition: int = 0, *, before: int) -> None:
        """Deletes the records below `before`, as retention does."""
        log = self._log(stream, partition)
        if before > log.end:
            raise InvalidRequest(f"before is {before}; it must be at most {log.end}, the end of the log")
        log.forget_below(before)
        self._state.notify()

    def forget_producers(self, stream: str, partition: int = 0) -> None:
        """Lets the log forget the ids of its producers (`UnknownProducer`)."""
        self._log(stream, partition).forget_producers()

    def _broker(self, broker_id: int) -> MemoryBroker:
        found = self._brokers.get(broker_id)
        if found is None:
            raise InvalidRequest(f"there is no broker {broker_id}; the brokers are {list(self._brokers)}")
        return found

    def _log(self, stream: str, partition: int) -> MemoryLog:
        self._state.partition(stream, partition)
        return self._state.log(self._state.stream(stream).stream_id, partition)


@asynccontextmanager
async def cluster(brokers: int = 3) -> AsyncIterator[FakeCluster]:
    """A cluster in memory with this number of brokers. Close its clients before it ends."""
    yield FakeCluster(brokers)
