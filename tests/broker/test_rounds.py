"""The lanes that all writes and flushes take: nobody is forgotten, whoever fails, is cancelled or leaves."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from broker.faulty_files import FaultyFiles
from support.waiting import until, until_true
from tidelog.errors import (
    DiskFull,
    InternalError,
    StorageFailed,
    StreamNotFound,
    TidelogError,
    TimedOut,
    Unavailable,
)
from tidelog.model import Durability, StreamConfig
from tidelog_broker.clock import elapsed_clock, system_clock
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.errors import StorageFailure
from tidelog_broker.hosting.replica_host import BrokerPartitionHost
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.volume_flush import VOLUME_FLUSH_LOGS_MIN
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.writing.append_requests import RecordsAppend, RecordsAppended
from tidelog_broker.writing.flush_rounds import FlushRounds
from tidelog_broker.writing.inline_writes import INLINE_WRITE_BYTES_MAX, InlineWrites
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.record_columns import RecordColumns
from tidelog_broker.writing.round_work import Task
from tidelog_broker.writing.write_rounds import WriteRounds

SLOW_SECONDS = 0.5
"""So slow no write is, on a busy machine either, unless a test holds it up."""


class Lanes:
    """Both lanes over real files, with hooks to hold them up."""

    def __init__(self, folder: Path) -> None:
        self.files = FaultyFiles()
        self.store = LogStore(self.files, str(folder))
        self.threads = [ThreadPoolExecutor(1) for _ in range(3)]
        self.failures: list[BaseException] = []
        self.isolated: dict[Partition, Exception] = {}
        self.flushes = FlushRounds(self.store, self.threads[0], self.threads[1], self._fail, self._isolate)
        self.rounds = WriteRounds(
            self.threads[2], self.flushes, system_clock, elapsed_clock, self._fail, self._isolate,
            inline=InlineWrites(SLOW_SECONDS),
        )  # fmt: skip
        self.partitions: list[Partition] = []

    def _fail(self, error: BaseException) -> None:
        self.failures.append(error)
        answer = StorageFailed(str(error))
        for partition in self.partitions:
            partition.give_up(answer, answer)

    def _isolate(self, partition: Partition, error: Exception) -> None:
        self.isolated[partition] = error
        partition.replica.removed = True
        partition.give_up(Unavailable("it failed"), TimedOut("it failed"))

    def flush_whole(self) -> None:
        """Says that one flush of the file system may stand for many, whichever it is."""
        self.store.volume = self.files.open_volume(self.store.root)

    def partition(self, number: int = 0, durability: Durability = Durability.FSYNC) -> Partition:
        name, stream_id = f"s{number}", bytes([number + 1]) * 16
        page_cache = durability is Durability.PAGE_CACHE
        log = self.store.opener.create(Wanted(name, stream_id, 0, LogConfig(), page_cache=page_cache))
        config = StreamConfig(replication_factor=1, min_insync_replicas=1, durability=durability)
        host = BrokerPartitionHost(
            1, None, self.store, self.rounds, self.flushes, cast(Any, None), ClusterClock(),
            lambda partition, reason: None,
        )  # fmt: skip
        made = Partition(name, stream_id, 0, config, log, host)
        placed = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=1)
        made.replica.imaged(ClusterImage(), StreamImage(name, stream_id, config, 1, 0, (placed,)))
        self.partitions.append(made)
        return made

    def append(
        self, partition: Partition, value: bytes = b"x", deadline: float = float("inf")
    ) -> "asyncio.Future[Any]":
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        records = RecordColumns()
        records.add(value, 1)
        append = RecordsAppend(records, answered.set_result, deadline=deadline)
        partition.submit(append)
        self.rounds.request(partition, append.bytes)
        return answered


@pytest_asyncio.fixture
async def lanes(tmp_path: Path) -> AsyncIterator[Lanes]:
    made = Lanes(tmp_path)
    yield made
    for threads in made.threads:
        threads.shutdown()
    made.store.files.close()
    if made.store.volume is not None:
        made.store.volume.close()


async def test_a_cancelled_wait_for_the_lane_does_not_block_it(lanes: Lanes) -> None:
    go = threading.Event()
    first = asyncio.create_task(lanes.rounds.exclusively(lambda: go.wait(10)))
    await asyncio.sleep(0)
    second = asyncio.create_task(lanes.rounds.exclusively(lambda: True))
    await asyncio.sleep(0)
    second.cancel()
    go.set()
    assert await first
    assert await asyncio.wait_for(lanes.append(lanes.partition()), 5)
    assert await asyncio.wait_for(lanes.rounds.exclusively(lambda: 7), 5) == 7


async def test_exclusive_work_keeps_the_lane_though_its_caller_is_cancelled(lanes: Lanes) -> None:
    go, running = threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        go.wait(10)

    task = asyncio.create_task(lanes.rounds.exclusively(work))
    await asyncio.to_thread(running.wait, 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    partition = lanes.partition()
    answered = lanes.append(partition)
    for _ in range(5):
        await asyncio.sleep(0)
    assert partition.queued == 1, "nobody has begun to write it"
    go.set()
    await asyncio.wait_for(answered, 5)


async def test_a_round_that_breaks_answers_everybody_in_it_and_everybody_who_waits(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, other = lanes.partition(0), lanes.partition(1)

    def broken(self: Partition, *_: object) -> None:
        raise StorageFailure("the disk is gone")

    monkeypatch.setattr(Partition, "write_round", broken)
    answers = [lanes.append(partition), lanes.append(other), lanes.append(partition)]
    found = await asyncio.wait_for(asyncio.gather(*answers), 5)
    assert all(isinstance(one, StorageFailed) for one in found)
    assert [str(failure) for failure in lanes.failures] == ["the disk is gone"]
    with pytest.raises(StorageFailure):
        await asyncio.wait_for(lanes.rounds.exclusively(lambda: None), 5)
    with pytest.raises(StorageFailure):
        await asyncio.wait_for(lanes.rounds.drained(), 5)


async def test_a_flush_is_done_though_others_never_stop_writing(lanes: Lanes) -> None:
    busy, quiet = lanes.partition(0), lanes.partition(1)
    stop = asyncio.Event()

    async def load() -> None:
        while not stop.is_set():
            await asyncio.gather(*(lanes.append(busy) for _ in range(3)))

    loads = [asyncio.create_task(load()) for _ in range(4)]
    await lanes.append(quiet)
    for _ in range(20):
        await asyncio.wait_for(lanes.flushes.flush([quiet]), 5)
        await asyncio.wait_for(lanes.flushes.forget([quiet]), 5)
    stop.set()
    await asyncio.gather(*loads)


async def test_a_failed_flush_releases_who_waits_for_one(lanes: Lanes) -> None:
    partition = lanes.partition()
    go, entered = threading.Event(), threading.Event()

    def failing(*_: object, **__: object) -> None:
        entered.set()
        assert go.wait(10)
        raise StorageFailure("the disk is gone")

    lanes.store.sync = failing  # type: ignore[method-assign]
    answered = lanes.append(partition)
    assert await asyncio.to_thread(entered.wait, 5)
    flushing = asyncio.create_task(lanes.flushes.flush([partition]))
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(StorageFailure):
        await asyncio.wait_for(flushing, 5)
    assert isinstance(await asyncio.wait_for(answered, 5), StorageFailed)


async def test_a_broker_that_fails_while_it_flushes_begins_no_other_flush(lanes: Lanes) -> None:
    partition = lanes.partition()
    go, entered = threading.Event(), threading.Event()
    sync, rounds = lanes.store.sync, 0

    def slow(*given: Any, **how: Any) -> None:
        nonlocal rounds
        rounds += 1
        entered.set()
        assert go.wait(10)
        sync(*given, **how)

    lanes.store.sync = slow  # type: ignore[method-assign]
    lanes.append(partition)
    assert await asyncio.to_thread(entered.wait, 5)
    lanes.append(partition)
    await until(lambda: lanes.flushes.waiting, "the second append written")
    flushing = asyncio.create_task(lanes.flushes.flush([partition]))
    await asyncio.sleep(0)

    lanes.flushes.end(StorageFailure("another file of it failed"))

    with pytest.raises(StorageFailure, match="another file"):
        await asyncio.wait_for(flushing, 5)
    go.set()
    await until(lambda: lanes.flushes.rounds, "the end of the first flush")
    assert rounds == 1


async def test_what_is_given_up_while_it_is_written_is_answered(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = lanes.partition()
    original = Partition.write_round
    go, entered = threading.Event(), threading.Event()

    def slow(self: Partition, appends: Any, now_us: int) -> Any:
        entered.set()
        assert go.wait(10)
        return original(self, appends, now_us)

    monkeypatch.setattr(Partition, "write_round", slow)
    writing = lanes.append(partition)
    assert await asyncio.to_thread(entered.wait, 5)
    queued = lanes.append(partition)
    partition.replica.removed = True
    partition.give_up(StreamNotFound("unwritten"), StreamNotFound("uncommitted"))
    go.set()
    assert str(await asyncio.wait_for(queued, 5)) == "unwritten"
    assert str(await asyncio.wait_for(writing, 5)) == "uncommitted"
    assert partition.waiting == 0


async def test_an_answer_that_fails_does_not_cost_the_others_theirs(lanes: Lanes) -> None:
    partition = lanes.partition()

    def broken(outcome: object) -> None:
        raise RuntimeError("a bug of who waits")

    records = RecordColumns()
    records.add(b"x", 1)
    append = RecordsAppend(records, broken)
    partition.submit(append)
    lanes.rounds.request(partition, append.bytes)
    answered = lanes.append(partition)
    assert (await asyncio.wait_for(answered, 5)).offsets[0] == 1


async def test_a_queued_append_past_its_deadline_is_taken_out_and_answered(lanes: Lanes) -> None:
    partition = lanes.partition()
    go = threading.Event()
    holding = asyncio.create_task(lanes.rounds.exclusively(lambda: go.wait(10)))
    await asyncio.sleep(0)
    now = asyncio.get_running_loop().time()
    late, patient = lanes.append(partition, deadline=now - 1), lanes.append(partition)
    partition.expire(now)
    assert isinstance(await late, TimedOut)
    go.set()
    await holding
    assert list((await asyncio.wait_for(patient, 5)).offsets) == [0]
    assert partition.log.end_offset == 1


async def test_a_long_queue_is_written_in_several_rounds(lanes: Lanes) -> None:
    partition = lanes.partition()
    answers = [lanes.append(partition, bytes(900_000)) for _ in range(30)]
    await asyncio.wait_for(asyncio.gather(*answers), 20)
    assert [one.result().offsets[0] for one in answers] == list(range(30))
    assert lanes.rounds.rounds > 2


async def test_a_full_disk_is_one_refusal_for_each_and_the_next_round_goes_on(lanes: Lanes) -> None:
    partition = lanes.partition()
    await lanes.append(partition)
    segment_write = type(partition.log.active).write
    full = OSError(errno.ENOSPC, "no room")

    def refuse(*_: object) -> None:
        raise full

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(partition.log.active), "write", refuse)
        found: list[TidelogError] = await asyncio.gather(*(lanes.append(partition) for _ in range(3)))
    assert {one.code for one in found} == {"DISK_FULL"}
    assert segment_write is type(partition.log.active).write
    assert list((await lanes.append(partition)).offsets) == [1]
    assert lanes.failures == []


async def test_a_followers_write_takes_its_turn_and_a_failed_one_is_told(lanes: Lanes) -> None:
    partition = lanes.partition()
    done: list[Exception | None] = []
    order: list[str] = []

    def fail() -> None:
        order.append("fails")
        raise DiskFull("no room")

    answered = lanes.append(partition)
    lanes.rounds.do(Task(partition, lambda: order.append("small"), done.append, 10))
    lanes.rounds.do(Task(partition, fail, done.append, 10))
    lanes.rounds.do(Task(partition, lambda: order.append("large"), done.append, 1 << 40))
    await asyncio.wait_for(lanes.rounds.drained(), 5)

    assert order == ["small", "fails", "large"]
    assert [type(one) for one in done] == [type(None), DiskFull, type(None)]
    assert isinstance(await asyncio.wait_for(answered, 5), RecordsAppended)
    assert lanes.failures == []


async def test_a_followers_write_of_which_nobody_knows_the_outcome_ends_the_broker(lanes: Lanes) -> None:
    partition = lanes.partition()

    def fail() -> None:
        raise StorageFailure("a truncation failed half-way")

    lanes.rounds.do(Task(partition, fail, lambda error: None, 10))
    with pytest.raises(StorageFailure):
        await asyncio.wait_for(lanes.rounds.drained(), 5)
    assert [str(failure) for failure in lanes.failures] == ["a truncation failed half-way"]


async def test_what_the_lane_was_asked_for_is_done_before_files_go(lanes: Lanes) -> None:
    partition, other = lanes.partition(0), lanes.partition(1)
    order: list[int] = []

    def noting(number: int) -> Callable[[], None]:
        return lambda: order.append(number)

    for number in range(3):
        lanes.rounds.do(Task(partition, noting(number), lambda error: None, 1 << 40))
    lanes.rounds.do(Task(other, noting(9), lambda error: None, 1))

    await asyncio.wait_for(lanes.rounds.drained_of([partition]), 5)

    assert order[:3] == [0, 1, 2]


async def test_a_round_over_many_logs_is_one_syncfs_and_a_round_over_few_is_not(
    lanes: Lanes,
) -> None:
    lanes.flush_whole()
    partitions = [lanes.partition(number) for number in range(VOLUME_FLUSH_LOGS_MIN)]
    few = [lanes.append(one) for one in partitions[1:]]
    await asyncio.wait_for(asyncio.gather(*few), 5)
    assert lanes.files.faults.syncfs_calls == lanes.flushes.whole_rounds == 0

    many = [lanes.append(one) for one in partitions]
    await asyncio.wait_for(asyncio.gather(*many), 5)

    assert lanes.files.faults.syncfs_calls == lanes.flushes.whole_rounds == 1
    assert [one.log.durable_offset for one in partitions] == [1] + [2] * (VOLUME_FLUSH_LOGS_MIN - 1)


async def test_syncfs_flushes_page_cache_streams_too_unless_they_have_too_much(
    lanes: Lanes,
) -> None:
    lanes.flush_whole()
    partitions = [lanes.partition(number) for number in range(VOLUME_FLUSH_LOGS_MIN)]
    lazy = lanes.partition(99, Durability.PAGE_CACHE)
    await asyncio.wait_for(lanes.append(lazy), 5)
    await asyncio.wait_for(lanes.append(lazy), 5)
    assert lazy.log.durable_offset == 1, "its epoch's start was flushed (R5), and no more"

    await asyncio.wait_for(asyncio.gather(*map(lanes.append, partitions)), 5)
    assert lazy.log.durable_offset == 2
    assert lazy.dirty_since is None

    for _ in range(6):
        await asyncio.wait_for(lanes.append(lazy, bytes(900_000)), 5)
    await asyncio.wait_for(asyncio.gather(*map(lanes.append, partitions)), 5)
    assert lanes.flushes.whole_rounds == 1
    assert lazy.log.durable_offset == 2


async def test_a_failed_flush_of_the_file_system_ends_the_broker(lanes: Lanes) -> None:
    lanes.flush_whole()
    lanes.files.faults.failing_sync = "everything"
    partitions = [lanes.partition(number) for number in range(VOLUME_FLUSH_LOGS_MIN)]

    answers = await asyncio.wait_for(asyncio.gather(*map(lanes.append, partitions)), 5)

    assert all(isinstance(one, StorageFailed) for one in answers)
    assert "Input/output error" in str(lanes.failures[0])
    assert lanes.flushes.failed


class _Bug(Exception):
    """What nobody foresaw."""


def _break(monkeypatch: pytest.MonkeyPatch, partition: Partition, method: str) -> None:
    """Has `method` of one partition fail, once it has done its work."""
    original = getattr(Partition, method)

    def broken(self: Partition, *given: Any) -> Any:
        done = original(self, *given)
        if self is partition:
            raise _Bug("of one partition")
        return done

    monkeypatch.setattr(Partition, method, broken)


async def test_a_bug_in_one_partitions_write_costs_the_others_of_the_round_nothing(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, bad, after = (lanes.partition(number) for number in range(3))
    _break(monkeypatch, bad, "write_round")
    answers = [lanes.append(one) for one in (before, bad, after)]
    first, failed, last = await asyncio.wait_for(asyncio.gather(*answers), 5)

    assert isinstance(first, RecordsAppended)
    assert isinstance(last, RecordsAppended)
    assert isinstance(failed, InternalError)
    assert not failed.definite, "the record is in the file, as it happens"
    assert list(lanes.isolated) == [bad]
    assert lanes.failures == []
    assert isinstance(await asyncio.wait_for(lanes.append(before), 5), RecordsAppended)


async def test_a_log_out_of_which_a_bug_came_is_not_touched_any_more(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = lanes.partition(0), lanes.partition(1)
    await asyncio.wait_for(lanes.append(bad), 5)
    durable, size = bad.log.durable_offset, bad.log.active.size
    _break(monkeypatch, bad, "write_round")
    touched: list[str] = []
    told: list[Exception | None] = []
    failing = lanes.append(bad)
    lanes.rounds.do(Task(bad, lambda: touched.append("the same round"), told.append, 10))
    await asyncio.wait_for(failing, 5)
    lanes.rounds.do(Task(bad, lambda: touched.append("a later round"), told.append, 1 << 40))
    await asyncio.wait_for(lanes.append(good), 5)
    await asyncio.wait_for(lanes.flushes.flush([good]), 5)
    await asyncio.wait_for(lanes.rounds.drained(), 5)

    assert touched == []
    assert [type(one) for one in told] == [Unavailable, Unavailable]
    assert bad.log.active.size > size, "what the bug left is there"
    assert bad.log.durable_offset == durable, "and nobody vouches for it"
    assert lanes.failures == []


async def test_a_bug_in_a_followers_write_isolates_it(lanes: Lanes) -> None:
    bad, good = lanes.partition(0), lanes.partition(1)
    told: list[Exception | None] = []

    def fail() -> None:
        raise _Bug("of a follower")

    lanes.rounds.do(Task(bad, fail, told.append, 10))
    answered = lanes.append(good)
    await asyncio.wait_for(lanes.rounds.drained(), 5)

    assert isinstance(await asyncio.wait_for(answered, 5), RecordsAppended)
    assert list(lanes.isolated) == [bad]
    assert isinstance(told[0], InternalError)
    assert lanes.failures == []


@pytest.mark.parametrize("method", ["written", "flushed"])
async def test_a_bug_in_what_one_partition_makes_of_a_round_costs_the_others_nothing(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    bad, good = lanes.partition(0), lanes.partition(1)
    _break(monkeypatch, bad, method)
    answers = [lanes.append(bad), lanes.append(good)]
    _, answered = await asyncio.wait_for(asyncio.gather(*answers), 5)

    assert isinstance(answered, RecordsAppended)
    assert list(lanes.isolated) == [bad]
    assert lanes.failures == []


async def test_small_rounds_are_written_on_the_event_loop_while_the_disk_is_idle(lanes: Lanes) -> None:
    partition = lanes.partition()
    await asyncio.wait_for(lanes.append(partition), 5)
    assert lanes.rounds.inline_rounds == 0, "the first write may have to read the log"
    for _ in range(3):
        await asyncio.wait_for(lanes.append(partition), 5)
    assert lanes.rounds.inline_rounds == 3


async def test_a_write_that_hangs_beside_a_flush_does_not_hold_up_the_event_loop(lanes: Lanes) -> None:
    """A file system has a write wait for the journal that a flush has begun to write."""
    partition, faults = lanes.partition(), lanes.files.faults
    await asyncio.wait_for(lanes.append(partition), 5)
    faults.hold_syncs = threading.Event()
    first = lanes.append(partition)
    await until(lambda: lanes.flushes.running, "a flush runs")
    faults.hold_writes = threading.Event()

    second = lanes.append(partition)
    for _ in range(100):
        # Raft and heartbeats have their turns.
        await asyncio.sleep(0)
    assert partition.waiting == 2

    faults.hold_writes.set()
    faults.hold_syncs.set()
    assert [list((await asyncio.wait_for(one, 5)).offsets) for one in (first, second)] == [[1], [2]]


async def test_after_a_slow_write_threads_write_until_one_is_fast_again(lanes: Lanes) -> None:
    partition, faults = lanes.partition(), lanes.files.faults
    await asyncio.wait_for(lanes.append(partition), 5)
    faults.hold_writes = threading.Event()
    # Nobody on the event loop can end the first one: it stands in the write.
    threading.Timer(2 * SLOW_SECONDS, faults.hold_writes.set).start()
    await asyncio.wait_for(lanes.append(partition), 5)
    assert lanes.rounds.inline_rounds == 1

    faults.hold_writes = threading.Event()
    hanging = lanes.append(partition)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not hanging.done()
    faults.hold_writes.set()
    await asyncio.wait_for(hanging, 5)
    assert lanes.rounds.inline_rounds == 1

    async def is_inline() -> bool:
        before = lanes.rounds.inline_rounds
        await asyncio.wait_for(lanes.append(partition), 5)
        return lanes.rounds.inline_rounds > before

    await until_true(is_inline, "a fast write")


@pytest.mark.parametrize(
    ("size", "flushing", "took", "may"),
    [
        (INLINE_WRITE_BYTES_MAX, False, 0.01, True),
        (INLINE_WRITE_BYTES_MAX + 1, False, 0.01, False),
        (1, True, 0.01, False),
        (1, False, 0.03, False),
    ],
)
def test_a_round_is_written_inline_if_it_is_small_and_the_disk_is_idle_and_was_fast(
    size: int, flushing: bool, took: float, may: bool
) -> None:
    inline = InlineWrites(slow_seconds=0.02)
    inline.took(took)
    assert inline.may(size, flushing=flushing) == may
