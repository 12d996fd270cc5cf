"""The facade without asyncio, from plain threads, against a fake broker in a loop of its own."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from support.fake_broker import FakeBroker
from tidelog import ProducerOptions, blocking, connect, errors
from tidelog._blocking.loop_thread import LoopThread
from tidelog.model import Position


class ServedBroker:
    """A fake broker that runs in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.broker = FakeBroker()
        self.run(self.broker.start())

    def run(self, work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()  # type: ignore[arg-type]

    def stop(self) -> None:
        self.run(self.broker.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def served() -> Iterator[ServedBroker]:
    served = ServedBroker()
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture
def log(served: ServedBroker) -> Iterator[blocking.Client]:
    with blocking.connect(served.broker.address) as client:
        yield client


def test_what_is_produced_is_read_back(log: blocking.Client) -> None:
    log.create_stream("s", partitions=2)
    with log.producer("s") as producer:
        assert producer.send(b"a", key=b"k", headers={"h": b"v"}).offset == 0
        receipts = producer.send_batch(pa.table({"value": [b"b", b"c"]}), partition=0)
        assert sum(receipt.last_offset - receipt.offset + 1 for receipt in receipts) == 2
        for number in range(1000):
            producer.send_nowait(b"%d" % number, partition=1)
        producer.flush()
    found = list(log.reader("s", follow=False))
    assert len(found) == 1003
    tail = [
        record.value for record in found if record.partition == 1 and record.value and record.value.isdigit()
    ]
    assert tail == [b"%d" % number for number in range(1000)]
    assert log.offsets("s")[1][1] >= 1000


def test_positions_count_what_was_taken(log: blocking.Client) -> None:
    log.create_stream("s")
    with log.producer("s") as producer:
        for _ in range(3):
            producer.send_batch(pa.table({"value": [b"v"] * 4}))
    with log.reader("s", end="latest") as reader:
        rows = iter(reader)
        assert [next(rows).offset for _ in range(2)] == [0, 1]
        assert reader.positions == {0: Position(2, 1)}
        batches = list(reader.batches(with_offsets=True))
        assert [batch.column("offset").to_pylist() for batch in batches] == [
            [2, 3],
            [4, 5, 6, 7],
            [8, 9, 10, 11],
        ]
        assert reader.positions == {0: Position(12, 1)}


def test_errors_arrive_in_the_calling_thread(log: blocking.Client) -> None:
    with pytest.raises(errors.StreamNotFound):
        log.producer("nope")
    with pytest.raises(errors.StreamNotFound):
        next(iter(log.reader("nope")))
    log.create_stream("s")
    with log.producer("s") as producer, pytest.raises(errors.InvalidRequest):
        producer.send_nowait("text")  # type: ignore[arg-type]


def test_records_that_cannot_be_taken_are_raised_by_flush(log: blocking.Client) -> None:
    log.create_stream("s")
    producer = log.producer("s")
    producer.send_nowait(b"v", partition=7)
    with pytest.raises(errors.PartitionNotFound, match="1 record was"):
        producer.flush()
    producer.close()


def test_a_full_buffer_refuses_and_drain_makes_room(served: ServedBroker) -> None:
    with blocking.connect(served.broker.address) as log:
        log.create_stream("s")
        with log.producer("s", options=ProducerOptions(buffer_bytes_max=64 << 10)) as producer:
            taken = 0
            for _ in range(2000):
                try:
                    producer.send_nowait(bytes(1000))
                    taken += 1
                except errors.ResourceExhausted:
                    producer.drain()
        assert taken > 1000
        assert log.offsets("s")[0][1] == taken


def test_many_threads_share_a_producer(served: ServedBroker) -> None:
    with blocking.connect(served.broker.address) as log:
        log.create_stream("s")
        with log.producer("s") as producer, ThreadPoolExecutor(4) as pool:

            def write(thread: int) -> None:
                for number in range(500):
                    producer.send_nowait(b"%d %d" % (thread, number))

            list(pool.map(write, range(4)))
        found = [record.value.split() for record in log.reader("s", follow=False) if record.value]
        for thread in range(4):
            own = [int(number) for who, number in found if int(who) == thread]
            assert own == list(range(500))


def test_a_lingering_batch_goes_by_itself(served: ServedBroker) -> None:
    with blocking.connect(served.broker.address) as log:
        log.create_stream("s")
        with log.producer("s") as producer:
            producer.send_nowait(b"v")
            assert next(iter(log.reader("s"))).value == b"v"


def test_nothing_runs_after_close(served: ServedBroker) -> None:
    async def tasks() -> set[asyncio.Task[object]]:
        return asyncio.all_tasks() - {asyncio.current_task()}

    # The loop is the process's: clients of other tests may live on it.
    others = LoopThread.shared().run(tasks())
    log = blocking.connect(served.broker.address)
    log.create_stream("s")
    producer = log.producer("s")
    producer.send_nowait(b"v")
    producer.flush()
    assert next(iter(log.reader("s"))).value == b"v"

    log.close()

    async def lasting() -> set[asyncio.Task[object]]:
        left = await tasks() - others
        return (await asyncio.wait(left, timeout=10))[1] if left else left

    # gRPC's own tasks hear of the end of their calls a moment later, from another thread.
    assert log.thread.run(lasting()) == set()


async def use_briefly(address: str) -> None:
    async with connect(address) as client:
        async with client.producer("s") as producer:
            await producer.send(b"v")
        async with client.reader("s") as reader:
            await anext(reader)


def test_loops_that_end_beside_blocking_clients_leave_no_errors_of_grpc(
    log: blocking.Client, served: ServedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC gives the events of all loops to any of them, and fails if the right one is closed by then."""
    log.create_stream("s")
    stop = threading.Event()

    def produce() -> None:
        with log.producer("s") as producer:
            while not stop.is_set():
                producer.send(b"v")

    with ThreadPoolExecutor() as threads:
        producing = threads.submit(produce)
        for _ in range(15):
            asyncio.run(use_briefly(served.broker.address))
        stop.set()
        producing.result()

    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_no_broker_is_one_clear_error() -> None:
    with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:1"):
        blocking.connect("127.0.0.1:1", connect_timeout_s=0.1)


def test_a_forked_process_has_a_loop_of_its_own() -> None:
    shared = LoopThread.shared()
    LoopThread.forget()
    try:
        assert LoopThread.shared() is not shared
    finally:
        LoopThread.stop()
        LoopThread._shared = shared
