"""Connecting, administering, closing."""

import asyncio
import random

import pytest

import tidelog
from support.fake_broker import FakeBroker
from support.hosts import HOST, free_port
from tidelog import Client, ClientOptions, RetryPolicy, errors
from tidelog.model import Retention


async def test_connecting_to_nothing_names_every_address_and_why() -> None:
    addresses = [f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"]
    with pytest.raises(errors.Unavailable) as caught:
        await tidelog.connect(addresses, connect_timeout_s=0.3)
    for address in addresses:
        assert address in str(caught.value)
    assert "refused" in str(caught.value).lower()


async def test_one_address_that_answers_is_enough(broker: FakeBroker) -> None:
    async with tidelog.connect([f"{HOST}:{free_port()}", broker.address]) as log:
        broker.add_stream("s")
        assert (await log.describe_stream("s")).name == "s"


async def test_a_broker_that_starts_late_is_waited_for() -> None:
    refused = asyncio.Event()

    class Noticing(RetryPolicy):
        def delay_s(self, attempt: int, rng: random.Random, hint_ms: int | None = None) -> float:
            refused.set()
            return super().delay_s(attempt, rng, hint_ms)

    async with FakeBroker() as broker:
        address = broker.address
        await broker.stop()
        connecting = asyncio.ensure_future(tidelog.connect(address, retry=Noticing()).open())
        await asyncio.wait_for(refused.wait(), 10)
        await broker.start()
        await (await connecting).close()


@pytest.mark.parametrize(
    "address",
    [
        "localhost",
        "http://localhost:9210",
        "localhost:x",
        ":9210",
        "localhost:99999",
        "localhost:²",
        "localhost:" + "9" * 5000,
        "",
    ],
)
def test_a_wrong_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="localhost:9210"):
        tidelog.connect(address)


async def test_settings_that_are_said_twice_are_refused_and_none_is_ignored(log: Client) -> None:
    with pytest.raises(errors.InvalidRequest, match="retry_timeout_s"):
        tidelog.connect("localhost:9210", options=ClientOptions(), retry_timeout_s=1.0)
    with pytest.raises(errors.InvalidRequest, match="linger_ms"):
        log.producer("s", acks="leader", options=tidelog.ProducerOptions())
    with pytest.raises(errors.InvalidRequest, match="follow"):
        log.reader("s", follow=False, options=tidelog.ReaderOptions())


async def test_creating_twice_is_success_and_bad_names_never_leave_the_client(
    log: Client, broker: FakeBroker
) -> None:
    first = await log.create_stream("orders", partitions=3, durability="page-cache")
    assert (await log.create_stream("orders", partitions=3)).stream_id == first.stream_id
    asked = broker.calls["CreateStream"]
    for wrong in ({"name": "a b"}, {"name": "s", "partitions": 0}, {"name": "s", "durability": "disk"}):
        with pytest.raises(errors.InvalidRequest):
            await log.create_stream(**wrong)
    with pytest.raises(errors.InvalidRequest):
        await log.create_stream("s", retention=Retention(age_ms=0))
    assert broker.calls["CreateStream"] == asked


async def test_creating_is_repeated_after_an_indefinite_error_and_deleting_is_not(
    log: Client, broker: FakeBroker
) -> None:
    broker.unary_script.append(errors.TimedOut("maybe"))
    await log.create_stream("s")
    broker.unary_script.append(errors.TimedOut("maybe"))
    with pytest.raises(errors.TimedOut):
        await log.delete_stream("s")
    assert broker.calls["DeleteStream"] == 1


async def test_listing_asks_for_every_page(log: Client, broker: FakeBroker) -> None:
    for name in ("a", "b", "c"):
        broker.add_stream(name)
    assert [stream.name for stream in await log.list_streams()] == ["a", "b", "c"]


async def test_requests_move_to_another_broker_when_one_is_gone() -> None:
    async with FakeBroker(0) as first, FakeBroker(1) as second:
        first.peers = second.peers = [first, second]
        first.add_stream("s")
        async with tidelog.connect([first.address, second.address], options=ClientOptions()) as log:
            await log.describe_stream("s")
            await first.stop()
            assert (await log.describe_stream("s")).name == "s"


async def test_offsets_and_time_out_of_the_way(log: Client, broker: FakeBroker) -> None:
    broker.add_stream("s", partitions=2)
    async with log.producer("s") as producer:
        await producer.send(b"v", partition=1)
    assert await log.offsets("s") == {0: (0, 0), 1: (0, 1)}


async def test_a_closed_client_says_so(broker: FakeBroker) -> None:
    log = await tidelog.connect(broker.address)
    await log.close()
    with pytest.raises(errors.InvalidRequest, match="closed"):
        await log.list_streams()


async def test_closing_the_client_leaves_no_task_behind(broker: FakeBroker) -> None:
    broker.add_stream("s")
    before = asyncio.all_tasks()
    log = await tidelog.connect(broker.address)
    producer = log.producer("s")
    await producer.start()
    await producer.send(b"v")
    producer.send_nowait(b"w")
    records = log.reader("s")
    await anext(records)
    await log.close()
    ours = {
        task
        for task in asyncio.all_tasks() - before
        if "tidelog" in repr(task.get_coro())
        or task.get_name()[:5] in ("fetch", "produ", "recei", "recov", "resol")
    }
    assert not ours
