"""`tidelog.testing`: what its cluster can be made to do, and what a client makes of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from tidelog import Client, Position, ProducerOptions, RetryPolicy, errors
from tidelog.testing import FakeCluster, blocking_cluster, cluster

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=5)


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    async with cluster() as fake:
        yield fake


@pytest.fixture
async def log(fake: FakeCluster) -> AsyncIterator[Client]:
    async with asyncio.timeout(10), fake.connect(retry=QUICK) as client:
        await client.create_stream("s")
        yield client


def options(**changes: Any) -> ProducerOptions:
    return ProducerOptions(**{"retry": QUICK, "linger_ms": 0, **changes})


def values(fake: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in fake.records("s", partition)]


async def test_a_lost_answer_is_repeated_and_stored_once(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", options=options()) as producer:
        fake.fail_next("produce", errors.ConnectionLost("cable"), landed=True)
        receipt = await producer.send(b"a")
    assert (receipt.offset, receipt.duplicate) == (0, True)
    assert values(fake) == [b"a"]


async def test_a_producer_that_is_not_idempotent_is_told_of_the_doubt(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", options=options(idempotent=False)) as producer:
        fake.fail_next("produce", errors.TimedOut("late"), landed=True)
        with pytest.raises(errors.TimedOut) as caught:
            await producer.send(b"a")
        fake.fail_next("produce", errors.DiskFull("full"), times=2)
        await producer.send(b"b")
    assert not caught.value.definite
    assert values(fake) == [b"a", b"b"]


async def test_a_forgotten_producer_is_indefinite_only_for_what_may_have_landed(
    fake: FakeCluster, log: Client
) -> None:
    async with log.producer("s", options=options()) as producer:
        await producer.send(b"a")
        fake.forget_producers("s")
        await producer.send(b"b")
        fake.fail_next("produce", errors.TimedOut("late"), landed=True)
        fake.fail_next("produce", errors.UnknownProducer("who?"))
        with pytest.raises(errors.TimedOut) as caught:
            await producer.send(b"c")
        await producer.send(b"d")
    assert not caught.value.definite
    assert values(fake) == [b"a", b"b", b"c", b"d"]


async def test_a_stopped_broker_hands_over_and_the_last_ones_refuse_writes(
    fake: FakeCluster, log: Client
) -> None:
    reader = log.reader("s")
    # The first refusal is the last word: the next attempt would come after the deadline.
    once = options(delivery_timeout_s=0.5, retry=RetryPolicy(first_delay_ms=60_000, delay_ms_max=60_000))
    async with log.producer("s", options=options()) as producer, log.producer("s", options=once) as hasty:
        await producer.send(b"a")
        first = fake.leader("s")
        assert first is not None
        fake.stop_broker(first)
        await producer.send(b"b")
        second = fake.leader("s")
        assert second not in (first, None)
        fake.stop_broker(next(one for one in range(3) if one not in (first, second)))
        with pytest.raises(errors.NotEnoughReplicas):
            await hasty.send(b"c")
        fake.start_broker(first)
        await producer.send(b"d")
    found = [await anext(reader) for _ in range(3)]
    assert [record.value for record in found] == values(fake) == [b"a", b"b", b"d"]
    assert [record.leader_epoch for record in found] == [1, 2, 2]


async def test_a_partition_without_a_leader_waits_for_one(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", options=options()) as producer:
        fake.lose_leader("s")
        sending = asyncio.create_task(producer.send(b"a"))
        reading = asyncio.create_task(anext(log.reader("s")))
        await asyncio.sleep(0.02)
        assert not sending.done()
        fake.elect("s")
        assert (await sending).leader_epoch == 2
        assert (await reading).value == b"a"


async def test_a_moved_leader_is_followed_without_an_error(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", options=options()) as producer:
        reader = log.reader("s")
        for number in range(6):
            await producer.send(b"%d" % number)
            assert (await anext(reader)).offset == number
            before = fake.leader("s")
            assert fake.move_leader("s") not in (before, None)
    assert values(fake) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(
    ("policy", "rest"), [("error", None), ("rewind", [b"x"]), ("earliest", [b"0", b"x"])]
)
async def test_a_truncated_log_is_told_to_readers_that_were_further(
    fake: FakeCluster, log: Client, policy: Any, rest: list[bytes] | None
) -> None:
    async with log.producer("s", options=options()) as producer:
        for number in range(3):
            await producer.send(b"%d" % number)
        reader = log.reader("s", on_truncated=policy)
        assert [(await anext(reader)).value for _ in range(3)] == [b"0", b"1", b"2"]
        fake.truncate("s", offset=1)
        await producer.send(b"x")
        if rest is None:
            with pytest.raises(errors.LogTruncated) as caught:
                await anext(reader)
            assert caught.value.details["divergence_offset"] == "1"
        else:
            assert [(await anext(reader)).value for _ in rest] == rest
        await reader.aclose()
    assert values(fake) == [b"0", b"x"]


async def test_expired_records_are_out_of_range(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", options=options()) as producer:
        for number in range(4):
            await producer.send(b"%d" % number)
    fake.expire("s", before=2)
    assert values(fake) == [b"2", b"3"]
    with pytest.raises(errors.OffsetOutOfRange):
        await anext(log.reader("s", start=Position(1)))


async def test_reading_fails_and_goes_on_as_planned(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", options=options()) as producer:
        await producer.send(b"a")
        fake.fail_next("fetch", errors.ConnectionLost("cable"))
        fake.fail_next("fetch", errors.NotLeader("moved"))
        fake.fail_next("offsets", errors.Unavailable("new leader"), times=2)
        reader = log.reader("s")
        assert (await anext(reader)).value == b"a"
        fake.fail_next("fetch", errors.DataCorrupt("rot"))
        with pytest.raises(errors.DataCorrupt):
            await anext(reader)


async def test_calls_are_held_and_delayed_as_planned(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", options=options()) as producer:
        with fake.hold("produce"):
            sending = asyncio.create_task(producer.send(b"a"))
            await asyncio.sleep(0.01)
            assert not sending.done()
        await sending
        fake.delay_next("list_streams", 0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await log.list_streams()
        assert len(await log.list_streams()) == 1


async def test_requests_to_the_whole_cluster_fail_as_planned(fake: FakeCluster, log: Client) -> None:
    fake.fail_next("create_stream", errors.Unavailable("no controller"), times=2)
    await log.create_stream("t")
    fake.fail_next("delete_stream", errors.ConnectionLost("cable"), landed=True)
    with pytest.raises(errors.ConnectionLost):
        await log.delete_stream("t")
    assert [stream.name for stream in await log.list_streams()] == ["s"]
    fake.fail_next("list_streams", errors.InternalError("bug"))
    fake.forgive()
    await log.list_streams()


async def test_clients_need_a_broker_that_is_up(fake: FakeCluster) -> None:
    for number in range(2):
        fake.stop_broker(number)
    async with fake.connect() as log:
        assert (await log.describe_cluster()).controller == 2
    fake.stop_broker(2)
    with pytest.raises(errors.Unavailable, match="no broker answered"):
        await fake.connect(connect_timeout_s=0.05)


async def test_what_makes_no_sense_is_refused(fake: FakeCluster, log: Client) -> None:
    for nonsense in (
        lambda: fake.fail_next("brew_tea", errors.TimedOut("")),
        lambda: fake.fail_next("produce", errors.TimedOut(""), times=0),
        lambda: fake.stop_broker(3),
        lambda: fake.move_leader("s", to=7),
        lambda: fake.truncate("s", offset=1),
        lambda: fake.expire("s", before=1),
    ):
        with pytest.raises(errors.InvalidRequest):
            nonsense()
    with pytest.raises(errors.StreamNotFound):
        fake.records("t")
    with pytest.raises(errors.PartitionNotFound, match="stream s has only partition 0, not 1"):
        fake.move_leader("s", 1)


async def test_a_call_that_brokers_in_memory_do_not_have_says_so(fake: FakeCluster, log: Client) -> None:
    with pytest.raises(errors.FeatureNotImplemented, match="Brew"):
        await log._channels.anywhere(lambda broker: broker.admin.Brew(None))  # type: ignore[attr-defined]


async def test_arrow_data_comes_back_as_arrow_data(fake: FakeCluster, log: Client) -> None:
    async with log.producer("s", compression="lz4") as producer:
        await producer.send_batch(pa.table({"key": [b"k"] * 5, "value": [b"%d" % n for n in range(5)]}))
    [batch] = [batch async for batch in log.reader("s", follow=False).batches(with_offsets=True)]
    assert batch.column("value").to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    assert batch.column("offset").to_pylist() == [0, 1, 2, 3, 4]


def test_the_blocking_client_has_a_cluster_of_its_own() -> None:
    with blocking_cluster() as fake, fake.connect() as log:
        log.create_stream("s")
        with log.producer("s") as producer:
            fake.do(lambda it: it.fail_next("produce", errors.ConnectionLost("cable"), landed=True))
            assert producer.send(b"a").duplicate
            fake.do(lambda it: it.stop_broker(it.leader("s") or 0))
            producer.send(b"b")
        assert [record.value for record in log.reader("s", follow=False)] == [b"a", b"b"]
        assert fake.do(lambda it: len(it.records("s"))) == 2


def test_neither_the_broker_nor_nats_is_imported() -> None:
    program = (
        "import sys, tidelog.testing; "
        "print([name for name in sys.modules if name.split('.')[0] in ('tidelog_broker', 'nats', 'pytest')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
