"""What a test sees: a cluster in memory, clients of it, and everything that can be done to it."""

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
    """Brokers in memory; made by `cluster`. All of it belongs to one event loop.

    Clients of it are real ones: only what lies behind the connection is not. Every change
    takes effect at once, and reads as it would in a real cluster.
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
        """Of all brokers. Nothing listens there: only `connect` finds them."""
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
            raise InvalidRequest(f"give options, or {', '.join(sorted(settings))}, not both")
        return Client(addresses or self.addresses, options or ClientOptions(**settings), self._dial)

    def _dial(self, address: str) -> BrokerChannel:
        for broker in self._brokers.values():
            if broker.address == address:
                return FakeConnection(broker)
        raise Unavailable(f"no broker in memory has the address {address}; there are {self.addresses}")

    # --- what is in it

    def records(self, stream: str, partition: int = 0) -> list[Record]:
        """Everything in a partition's log, from its start."""
        log = self._log(stream, partition)
        state = FetchState(stream, log.stream_id, partition, Position(log.start), None)
        answer = FetchAnswer(log_pb2.FetchResponse(), b"".join(stored.data for stored in log.batches))
        return [record for batch in state.accept(answer) for record in batch.records()]

    def leader(self, stream: str, partition: int = 0) -> int | None:
        """The id of the broker that leads the partition; None: nobody does."""
        return self._state.partition(stream, partition).leader

    # --- calls that go wrong

    def fail_next(
        self,
        call: str,
        error: TidelogError,
        *,
        landed: bool = False,
        times: int = 1,
        partition: int | None = None,
    ) -> None:
        """The next `times` calls of that kind fail with `error`.

        `call` is an rpc in snake case: produce (each batch counts), fetch (each look at a
        partition), offsets, resolve, create_stream, … `ConnectionLost` breaks the connection
        instead of an answer. `landed`: the request has its effect all the same, and only its
        answer is lost, as after an indefinite error. With `partition` only batches and looks
        at that one count.
        """
        self._faults.plan(call, times=times, partition=partition, fault=Fault(error, landed))
        self._state.notify()

    def delay_next(self, call: str, seconds: float, *, times: int = 1, partition: int | None = None) -> None:
        """The next `times` calls of that kind take so much longer."""
        self._faults.plan(call, times=times, partition=partition, delay_s=seconds)

    def hold(self, call: str) -> AbstractContextManager[None]:
        """``with fake.hold("produce"):`` calls of that kind are answered when the block ends."""
        return self._faults.hold(call)

    def forgive(self) -> None:
        """What was planned by `fail_next` and `delay_next` and is not yet met does not happen."""
        self._faults.clear()

    # --- brokers and leaders

    def stop_broker(self, broker_id: int) -> None:
        """Its connections break, and brokers in sync with it take over what it led.

        Where fewer than `min_insync_replicas` are left, writing is refused (`NotEnoughReplicas`).
        """
        broker = self._broker(broker_id)
        broker.go()
        self._state.stop(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """It is back, and in sync again."""
        broker = self._broker(broker_id)
        broker.come_back()
        self._state.start(broker_id)

    def move_leader(self, stream: str, partition: int = 0, *, to: int | None = None) -> int:
        """Another replica leads, in a new leader epoch, as after a planned handover; answers which."""
        now = self._state.partition(stream, partition)
        others = [one for one in now.isr if one != now.leader and self._brokers[one].up]
        if to is None and not others:
            raise InvalidRequest(f"{stream}/{partition} has no other replica in sync to lead it: {now.isr}")
        leader = self._state.elect(stream, partition, others[0] if to is None else to)
        assert leader is not None
        return leader

    def lose_leader(self, stream: str, partition: int = 0) -> None:
        """Nobody leads the partition until `elect`."""
        self._state.depose(stream, partition)

    def elect(self, stream: str, partition: int = 0) -> None:
        """A replica in sync leads the partition, in a new leader epoch."""
        self._state.elect(stream, partition)

    # --- logs

    def truncate(self, stream: str, partition: int = 0, *, offset: int) -> None:
        """The batches that reach beyond `offset` are lost, as by an unclean election.

        Readers that were further get `LogTruncated`, or what their `on_truncated` says.
        """
        log = self._log(stream, partition)
        if not log.start <= offset <= log.end:
            raise InvalidRequest(f"offset is {offset}; the log holds {log.start}–{log.end}")
        log.truncate(offset)
        self._state.elect(stream, partition)

    def expire(self, stream: str, partition: int = 0, *, before: int) -> None:
        """Retention takes the records below `before`."""
        log = self._log(stream, partition)
        if before > log.end:
            raise InvalidRequest(f"before is {before}; the log ends at {log.end}")
        log.forget_below(before)
        self._state.notify()

    def forget_producers(self, stream: str, partition: int = 0) -> None:
        """The log no longer knows who wrote to it (`UnknownProducer`)."""
        self._log(stream, partition).forget_producers()

    def _broker(self, broker_id: int) -> MemoryBroker:
        found = self._brokers.get(broker_id)
        if found is None:
            raise InvalidRequest(f"there is no broker {broker_id}; there are {list(self._brokers)}")
        return found

    def _log(self, stream: str, partition: int) -> MemoryLog:
        self._state.partition(stream, partition)
        return self._state.log(self._state.stream(stream).stream_id, partition)


@asynccontextmanager
async def cluster(brokers: int = 3) -> AsyncIterator[FakeCluster]:
    """A cluster in memory with so many brokers; its clients are to be closed first."""
    yield FakeCluster(brokers)
