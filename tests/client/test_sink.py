"""Sinks on real brokers: each batch of a sink is in the log once, or the sink says why not (S1–S4)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa
import pytest

import tidelog
from support.broker import BrokerProcess
from tidelog import Client, errors
from tidelog.sink import OpenBatch, Sink, SinkAttempt, TaskRows


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
async def log(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with tidelog.connect(broker.address) as log:
        yield log


class Job:
    """A job with one sink; its rows are numbers."""

    def __init__(self, log: Client, stream: str) -> None:
        self.log = log
        self.stream = stream
        self.sink: Sink = log.sink(stream)
        self.name = f"job-{stream}"

    async def open(self, batch_id: int) -> OpenBatch:
        return await self.sink.open(self.name, run=await self.sink.begin_run(), batch_id=batch_id)

    async def write(self, batch: OpenBatch, task: int, numbers: range, part: int = 0) -> dict[int, TaskRows]:
        attempt = await self.attempt(batch, task)
        try:
            await put(attempt, numbers, part)
            return await attempt.finish()
        finally:
            await attempt.close()

    async def attempt(self, batch: OpenBatch, task: int) -> SinkAttempt:
        return await self.sink.attempt(batch, task, rows_max=10)

    async def values(self) -> list[int]:
        reader = self.log.reader(self.stream, follow=False)
        return sorted([int(record.value or b"") async for record in reader])


async def put(attempt: SinkAttempt, numbers: range, partition: int = 0) -> None:
    values = pa.array([b"%d" % number for number in numbers], pa.binary())
    await attempt.write(pa.record_batch({"value": values}), partition)


@pytest.fixture
async def job(log: Client) -> Job:
    name = f"s-{uuid.uuid4()}"
    await log.create_stream(name, partitions=2)
    return Job(log, name)


async def test_the_batches_of_a_sink_are_written_in_order_and_verified(job: Job) -> None:
    for batch_id in range(3):
        batch = await job.open(batch_id)
        first = await job.write(batch, 0, range(100 * batch_id, 100 * batch_id + 35))
        other = await job.write(batch, 1, range(100 * batch_id + 35, 100 * batch_id + 50), 1)
        await job.sink.verify(await job.open(batch_id), {0: first, 1: other})

    assert first[0].rows == 35
    assert await job.values() == [100 * a + b for a in range(3) for b in range(50)]


async def test_rows_of_a_batch_have_one_time_in_every_run(job: Job) -> None:
    batch = await job.open(4)
    again = await job.open(4)

    assert again.time_us == batch.time_us
    assert again.run > batch.run
    assert (await job.open(5)).time_us > batch.time_us


async def test_a_run_after_a_crash_writes_only_what_is_missing(job: Job) -> None:
    batch = await job.open(0)
    attempt = await job.attempt(batch, 0)
    await put(attempt, range(25))  # 20 rows are sent, 5 wait
    await asyncio.wait(list(attempt._waiting))
    await attempt.close()
    await job.write(batch, 1, range(100, 110), 1)

    batch = await job.open(0)
    reported = {0: await job.write(batch, 0, range(40)), 1: await job.write(batch, 1, range(100, 120), 1)}
    await job.sink.verify(await job.open(0), reported)

    assert await job.values() == [*range(40), *range(100, 120)]


async def test_two_attempts_of_one_task_at_the_same_time_write_each_row_once(job: Job) -> None:
    batch = await job.open(0)

    outcomes = await asyncio.gather(
        *(job.write(batch, 0, range(3000)) for _ in range(3)), return_exceptions=True
    )

    done = [outcome for outcome in outcomes if isinstance(outcome, dict)]
    assert done
    assert all(isinstance(outcome, dict | errors.DuplicateSequence) for outcome in outcomes)
    await job.sink.verify(await job.open(0), {0: done[0]})
    assert await job.values() == list(range(3000))


async def test_other_rows_in_a_repeated_batch_are_refused(job: Job) -> None:
    await job.write(await job.open(0), 0, range(30))
    batch = await job.open(0)

    with pytest.raises(errors.IndeterminateReplay, match="another checksum"):
        await job.write(batch, 0, range(1, 40))
    with pytest.raises(errors.IndeterminateReplay, match="and this attempt 20"):
        await job.write(batch, 0, range(20))

    assert await job.values() == list(range(30))


async def test_attempts_with_other_rows_at_the_same_time_are_found_out(job: Job) -> None:
    batch = await job.open(0)
    one, other = [await job.attempt(batch, 0) for _ in range(2)]

    await put(one, range(20))
    await one.finish()
    await put(other, range(50, 70))
    with pytest.raises(errors.IndeterminateReplay, match="again with other rows"):
        await other.finish()

    await asyncio.gather(one.close(), other.close())
    assert await job.values() == list(range(20))


@pytest.mark.parametrize("tasks", [1, 3], ids=["fewer tasks", "more tasks"])
async def test_a_batch_that_is_divided_differently_is_right_or_found_out(job: Job, tasks: int) -> None:
    batch = await job.open(0)
    await job.write(batch, 1, range(30, 60))  # of two tasks, the first wrote nothing
    batch = await job.open(0)

    async def write_again() -> None:
        rows = 60 // tasks
        reported = {
            task: await job.write(batch, task, range(task * rows, (task + 1) * rows)) for task in range(tasks)
        }
        await job.sink.verify(await job.open(0), reported)

    with pytest.raises(errors.IndeterminateReplay):
        await write_again()


async def test_an_earlier_run_writes_nothing_after_a_later_one_has_begun(job: Job) -> None:
    batch = await job.open(0)
    late = await job.attempt(batch, 7)
    now = await job.open(0)

    await put(late, range(30))
    with pytest.raises(errors.FencedProducer, match="another attempt of the query"):
        await late.finish()
    with pytest.raises(errors.FencedProducer):
        await job.attempt(batch, 8)
    with pytest.raises(errors.FencedProducer):
        await job.sink.open(job.name, run=batch.run, batch_id=0)

    await late.close()
    await job.sink.verify(now, {})
    assert await job.values() == []


async def test_an_earlier_batch_is_not_written_again(job: Job) -> None:
    await job.write(await job.open(1), 0, range(5))

    with pytest.raises(errors.FencedProducer, match="new checkpoint"):
        await job.open(0)


async def test_a_sink_keeps_to_its_stream_and_a_batch_to_its_partitions(job: Job) -> None:
    await job.open(0)
    await job.log.create_stream(f"{job.stream}-2")
    other = job.log.sink(f"{job.stream}-2")
    with pytest.raises(errors.InvalidRequest, match="another sinkId"):
        await other.open(job.name, run=await other.begin_run(), batch_id=1)

    await job.log.alter_stream(job.stream, partitions=4)
    again, following = await job.open(0), await job.open(1)
    assert (again.partitions, following.partitions) == (2, 4)
    with pytest.raises(errors.InvalidRequest, match="partitions 0 to 3"):
        await job.write(following, 0, range(1), 4)


async def test_a_sink_of_one_batch_is_forgotten_when_it_is_closed(job: Job) -> None:
    run = await job.sink.begin_run()
    batch = await job.sink.open("once", run=run, batch_id=0, once=True)
    late = await job.attempt(batch, 1)
    await job.sink.verify(batch, {0: await job.write(batch, 0, range(3))})

    await job.sink.close("once", run)
    await put(late, range(10, 40))
    with pytest.raises(errors.UnknownProducer):
        await late.finish()
    await late.close()
    lasting = await job.open(0)
    with pytest.raises(errors.InvalidRequest, match="more than one batch"):
        await job.sink.close(job.name, lasting.run)

    assert await job.values() == [0, 1, 2]


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 201])
async def test_a_bad_name_of_a_sink_gets_a_sentence(job: Job, name: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="give 1 to 200"):
        await job.sink.open(name, run=await job.sink.begin_run(), batch_id=0)


async def test_a_run_that_was_not_given_out_is_refused(job: Job) -> None:
    with pytest.raises(errors.InvalidRequest, match="BeginSinkRun"):
        await job.sink.open(job.name, run=1 << 40, batch_id=0)


async def test_the_rows_of_a_sink_are_known_after_a_kill_of_the_broker(
    job: Job, broker: BrokerProcess
) -> None:
    batch = await job.open(9)
    before = await job.write(batch, 0, range(45))
    broker.kill()
    broker.start()

    log = tidelog.connect(broker.address)
    async with log:
        again = Job(log, job.stream)
        batch = await again.open(9)
        found = await again.sink.written(batch)
        assert found[0].tasks == {0: before[0]}
        reported = {0: await again.write(batch, 0, range(45)), 1: await again.write(batch, 1, range(45, 60))}
        await again.sink.verify(await again.open(9), reported)
        assert await again.values() == list(range(60))
