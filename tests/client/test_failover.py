"""A client and several brokers: what breaks, freezes, moves or lags behind, and what the caller sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from support.fake_broker import Fail, FakeBroker, FakeLog, Silence
from support.tcp_proxy import TcpProxy
from support.waiting import until
from tidelog import (
    Client,
    ClientOptions,
    ProducerOptions,
    ReaderOptions,
    RetryPolicy,
    errors,
    wire,
)
from tidelog._reading import calls as _fetch_calls
from tidelog.model import Listener
from tidelog.records import decode_batch
from tidelog_proto import log_pb2

QUICK = RetryPolicy(first_delay_ms=1, delay_ms_max=10)

PROMPTLY = 8.0
"""Seconds. Far below the timeouts of requests, so that whoever waits for one of those is caught."""


def producer_options(**changes: Any) -> ProducerOptions:
    return ProducerOptions(**{"retry": QUICK, "linger_ms": 0, **changes})


def values(log: FakeLog) -> list[bytes]:
    return [
        value for header, data in log.batches for value in decode_batch(data, header)["value"].to_pylist()
    ]


@pytest.fixture
async def brokers() -> AsyncIterator[list[FakeBroker]]:
    """Three that know of each other; the first leads what is made."""
    made = [FakeBroker(number) for number in range(3)]
    for broker in made:
        await broker.start()
        broker.peers = made
    yield made
    for broker in made:
        await broker.stop()


@asynccontextmanager
async def connected(*addresses: str) -> AsyncIterator[Client]:
    async with (
        asyncio.timeout(3 * PROMPTLY),
        tidelog.connect(addresses, options=ClientOptions(retry=QUICK)) as log,
    ):
        yield log


# --- whom to ask


async def test_servers_may_be_given_as_one_list(brokers: list[FakeBroker]) -> None:
    text = ", ".join(broker.address for broker in brokers)
    async with tidelog.connect(text) as log:
        assert await log.list_streams() == []


async def test_seeds_that_are_dead_or_frozen_delay_nobody(brokers: list[FakeBroker]) -> None:
    brokers[0].add_stream("s")
    async with TcpProxy(brokers[1].address) as frozen, TcpProxy(brokers[1].address) as dead:
        frozen.freeze()
        await dead.cut()
        async with (
            asyncio.timeout(PROMPTLY),
            connected(dead.address, frozen.address, brokers[0].address) as log,
            log.producer("s") as producer,
        ):
            assert (await producer.send(b"v")).offset == 0


async def test_a_request_that_any_broker_may_answer_leaves_one_that_is_frozen(
    brokers: list[FakeBroker],
) -> None:
    brokers[0].add_stream("s")
    async with TcpProxy(brokers[0].address) as proxy:
        brokers[0].address = proxy.address
        async with connected(proxy.address) as log, asyncio.timeout(PROMPTLY):
            await log.offsets("s")
            proxy.freeze()
            await log.create_stream("t")
            assert len(await log.list_streams()) == 2


async def test_a_broker_that_cannot_serve_a_request_now_is_not_asked_again_at_once(
    brokers: list[FakeBroker],
) -> None:
    async with connected(*(broker.address for broker in brokers)) as log:
        asked = next(broker for broker in brokers if broker.address == log._channels.addresses[0])
        asked.unary_script.extend([errors.Stopping("leaving")] * 5)
        await log.create_stream("s")
        assert len(asked.unary_script) == 4


async def test_a_stream_that_the_asked_broker_does_not_know_yet_is_found_at_another(
    brokers: list[FakeBroker],
) -> None:
    brokers[1].add_stream("s")
    async with connected(brokers[0].address) as log:
        await log.offsets("s")
        del brokers[0].streams["s"]
        brokers[1].version = brokers[2].version = 1
        log._channels.prefer(brokers[0].address)
        assert await log.offsets("s") == {0: (0, 0)}


async def test_what_a_broker_that_is_behind_says_of_leaders_does_not_count(
    brokers: list[FakeBroker],
) -> None:
    behind, ahead, leader = brokers
    [stored] = behind.add_stream("s")
    async with connected(behind.address) as log, log.producer("s", options=producer_options()) as producer:
        await producer.send(b"a")
        behind.lead("s", 0, 2, seen_by=[ahead, leader])
        await log.offsets("s")  # somebody has seen the new version
        await behind.stop()
        await producer.send(b"b")
        await behind.start()
        log._channels.prefer(behind.address)
        assert await log.offsets("s") == {0: (0, 2)}
    assert values(stored) == [b"a", b"b"]


async def test_a_leader_that_is_cut_off_with_what_it_knows_is_not_believed_for_ever(
    brokers: list[FakeBroker],
) -> None:
    """It answers first, its news are as old as the client's, and it cannot take what it says is its own."""
    cut_off, follower, leader = brokers
    [stored] = cut_off.add_stream("s")
    cut_off.script.extend([None, *[Fail(errors.Unavailable("another broker may lead it by now"))] * 1000])
    async with connected(cut_off.address) as log, log.producer("s", options=producer_options()) as producer:
        await producer.send(b"a")
        cut_off.lead("s", 0, 2, seen_by=[follower, leader])
        log._channels.prefer(cut_off.address)
        async with asyncio.timeout(PROMPTLY):
            await producer.send(b"b")
    assert values(stored) == [b"a", b"b"]


async def test_many_streams_are_asked_about_in_one_request(brokers: list[FakeBroker]) -> None:
    names = [f"s{number}" for number in range(50)]
    for name in names:
        brokers[0].add_stream(name)
    async with connected(brokers[0].address) as log:
        brokers[0].calls.clear()
        found = await asyncio.gather(*(log.offsets(name) for name in names))
        assert found == [{0: (0, 0)}] * 50
        assert brokers[0].calls["Resolve"] <= 2  # the first names, and those that came meanwhile


async def test_brokers_are_reached_at_the_listener_of_the_name_that_was_given(
    brokers: list[FakeBroker],
) -> None:
    brokers[2].add_stream("s")
    for broker in brokers:
        broker.more_listeners = [Listener("elsewhere", "192.0.2.1", 9210)]
    async with connected(brokers[0].address) as log, log.producer("s") as producer:
        assert (await producer.send(b"v")).offset == 0


# --- leaders


async def test_the_leader_that_a_refusal_names_is_asked_at_once(brokers: list[FakeBroker]) -> None:
    old, _, new = brokers
    [stored] = old.add_stream("s")
    async with connected(old.address) as log, log.producer("s", options=producer_options()) as producer:
        await producer.send(b"a")
        asked = sum(broker.calls["Resolve"] for broker in brokers if "Resolve" in broker.calls)
        old.lead("s", 0, 2)
        await producer.send(b"b")
        assert sum(broker.calls["Resolve"] for broker in brokers if "Resolve" in broker.calls) == asked
        assert new.calls["Produce"] == 1
    assert values(stored) == [b"a", b"b"]


async def test_brokers_that_name_each_other_are_asked_until_one_leads(brokers: list[FakeBroker]) -> None:
    first, second, third = brokers
    [stored] = first.add_stream("s")
    async with connected(first.address) as log, log.producer("s", options=producer_options()) as producer:
        await producer.send(b"a")
        first.lead("s", 0, 1, seen_by=[first, third])  # the second still takes the first for the leader
        sending = asyncio.create_task(producer.send(b"b"))
        await until(lambda: len(second.produced) > 3, "both are asked more than once")
        first.lead("s", 0, 1, seen_by=[second])
        assert (await sending).offset == 1
    assert values(stored) == [b"a", b"b"]


async def test_a_leader_that_does_not_know_the_stream_yet_is_asked_again(brokers: list[FakeBroker]) -> None:
    [stored] = brokers[0].add_stream("s")
    async with (
        connected(brokers[1].address) as log,
        log.producer("s", options=producer_options()) as producer,
    ):
        known = brokers[0].streams.pop("s")
        sending = asyncio.create_task(producer.send(b"v"))
        reader = log.reader("s", start=0, end=1, options=ReaderOptions(retry=QUICK))
        reading = asyncio.create_task(anext(reader))
        await until(lambda: len(brokers[0].produced) > 2 and len(brokers[0].fetches) > 2, "it is asked")
        brokers[0].streams["s"] = known
        assert (await sending).offset == 0
        assert (await reading).value == b"v"
    assert values(stored) == [b"v"]


# --- producers


async def test_batches_in_flight_at_a_dead_leader_go_again_in_order_to_the_next_one(
    brokers: list[FakeBroker],
) -> None:
    old, _, new = brokers
    [stored] = old.add_stream("s")
    async with TcpProxy(old.address) as proxy:
        old.address = proxy.address
        async with (
            connected(brokers[1].address) as log,
            log.producer("s", options=producer_options()) as producer,
        ):
            await producer.send(b"first")
            # One lands and its answer is lost; the others of the window are behind it.
            old.script.append(Silence(landed=True))
            sends = [asyncio.create_task(producer.send_batch(_table(n))) for n in range(8)]
            await until(lambda: len(old.produced) >= 2, "one is in flight")
            await until(lambda: producer._sender.queue(0).window.inflight == 5, "the window is full")
            await proxy.cut()
            old.lead("s", 0, 2)
            receipts = [receipt for [receipt] in await asyncio.gather(*sends)]
        assert [receipt.offset for receipt in receipts] == list(range(1, 9))
        assert values(stored) == [b"first", *(b"%d" % number for number in range(8))]

    assert old.produced[1].batch[48:62] == new.produced[0].batch[48:62], "producer id, sequence and epoch"


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "hung"])
async def test_a_leader_that_neither_answers_nor_breaks_is_left_for_its_successor(
    brokers: list[FakeBroker], frozen: bool
) -> None:
    old, _, _ = brokers
    [stored] = old.add_stream("s")
    async with TcpProxy(old.address) as proxy:
        old.address = proxy.address
        async with (
            asyncio.timeout(PROMPTLY),
            connected(brokers[1].address, proxy.address) as log,
            log.producer("s", options=producer_options()) as producer,
        ):
            reader = log.reader(
                "s", options=ReaderOptions(retry=QUICK, silence_timeout_s=1.0, heartbeat_ms=200)
            )
            await producer.send(b"a")
            assert (await anext(reader)).value == b"a"
            if frozen:
                proxy.freeze()
            else:
                # The connection's other end is well; nothing comes from behind it.
                old.script.append(Silence())
                old.fetch_script.append(Silence())
            sending = [asyncio.create_task(producer.send(b"%d" % number)) for number in range(3)]
            old.lead("s", 0, 2)
            await asyncio.gather(*sending)
            assert [(await anext(reader)).value for _ in range(3)] == [b"0", b"1", b"2"]
    assert values(stored) == [b"a", b"0", b"1", b"2"]


async def test_too_few_replicas_are_waited_for_until_the_delivery_timeout(brokers: list[FakeBroker]) -> None:
    [stored] = brokers[0].add_stream("s")
    few = Fail(errors.NotEnoughReplicas("1 of 2"))
    async with (
        connected(brokers[0].address) as log,
        log.producer("s", options=producer_options(delivery_timeout_s=0.5)) as producer,
    ):
        brokers[0].script.extend([few] * 3)
        assert (await producer.send(b"a")).offset == 0
        brokers[0].script.append(Fail(errors.NotEnoughReplicas("1 of 2", retry_after_ms=60_000)))
        with pytest.raises(errors.NotEnoughReplicas) as caught:
            await producer.send(b"b")
        assert caught.value.definite
    assert values(stored) == [b"a"]


async def test_a_failed_disk_of_the_leader_is_the_next_leaders_opportunity(brokers: list[FakeBroker]) -> None:
    old, _, _ = brokers
    [stored] = old.add_stream("s")
    async with (
        connected(old.address) as log,
        log.producer("s", options=producer_options()) as producer,
        log.producer("s", options=producer_options(idempotent=False)) as plain,
    ):
        old.script.append(Fail(errors.StorageFailed("fsync"), landed=True))
        sending = asyncio.create_task(producer.send(b"a"))
        await until(lambda: len(old.produced) > 0, "it is refused")
        old.lead("s", 0, 2)
        assert (await sending).offset == 0
        brokers[2].script.append(Fail(errors.StorageFailed("fsync")))
        with pytest.raises(errors.StorageFailed):
            await plain.send(b"b")
    assert values(stored) == [b"a"]


async def test_an_id_that_the_new_leader_lost_is_indefinite_for_what_may_have_landed(
    brokers: list[FakeBroker],
) -> None:
    old, _, _ = brokers
    [stored] = old.add_stream("s")
    async with TcpProxy(old.address) as proxy:
        old.address = proxy.address
        async with (
            connected(brokers[1].address) as log,
            log.producer("s", options=producer_options()) as producer,
        ):
            await producer.send(b"a")
            old.script.append(Silence(landed=True))
            sending = asyncio.create_task(producer.send(b"b"))
            await until(lambda: len(stored.batches) == 2, "it landed")
            await proxy.cut()
            stored.producers.clear()
            old.lead("s", 0, 2)
            with pytest.raises(errors.ConnectionLost) as caught:
                await sending
            assert not caught.value.definite
            assert (await producer.send(b"c")).offset == 2
    assert values(stored) == [b"a", b"b", b"c"]


async def test_without_idempotence_only_what_cannot_have_landed_goes_to_the_next_leader(
    brokers: list[FakeBroker],
) -> None:
    old, _, _ = brokers
    [stored] = old.add_stream("s")
    async with TcpProxy(old.address) as proxy:
        old.address = proxy.address
        async with (
            connected(brokers[1].address) as log,
            log.producer("s", options=producer_options(idempotent=False, inflight_batches_max=1)) as producer,
        ):
            await producer.send(b"a")
            old.script.append(Silence(landed=True))
            sends = [asyncio.create_task(producer.send_batch(_table(number))) for number in range(3)]
            await until(lambda: len(stored.batches) == 2, "the first landed")
            await proxy.cut()
            old.lead("s", 0, 2)
            results = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(results[0], errors.ConnectionLost)
    assert values(stored) == [b"a", b"0", b"1", b"2"]


async def test_a_planned_handover_is_invisible(brokers: list[FakeBroker]) -> None:
    logs = brokers[0].add_stream("s", partitions=4)
    async with (
        connected(brokers[0].address) as log,
        log.producer("s", options=producer_options()) as producer,
    ):
        reader = log.reader("s")
        for turn in range(6):
            sends = [producer.send(b"%d" % turn, partition=number) for number in range(4)]
            moving = asyncio.gather(*sends)
            await asyncio.sleep(0)
            for number in range(4):
                brokers[0].lead("s", number, (turn + number) % 3)
            await moving
        found = [await anext(reader) for _ in range(24)]
    assert all(values(stored) == [b"%d" % turn for turn in range(6)] for stored in logs)
    for number in range(4):
        assert [record.offset for record in found if record.partition == number] == list(range(6))


# --- readers


async def test_a_partition_without_a_leader_holds_up_no_other(brokers: list[FakeBroker]) -> None:
    brokers[0].add_stream("s", partitions=2)
    async with connected(brokers[0].address) as log:
        async with log.producer("s", options=producer_options()) as producer:
            for number in range(2):
                await producer.send(b"v", partition=number)
        brokers[0].lead("s", 0, None)
        reader = log.reader("s", start=0, options=ReaderOptions(retry=QUICK))
        assert (await anext(reader)).partition == 1
        brokers[0].lead("s", 0, 2)
        assert (await anext(reader)).partition == 0
        await reader.aclose()


async def test_a_reader_that_was_idle_for_long_survives_the_loss_of_its_leader(
    brokers: list[FakeBroker],
) -> None:
    [stored] = brokers[0].add_stream("s")
    patient = ReaderOptions(retry=QUICK, heartbeat_ms=20, retry_timeout_s=0.4)
    async with TcpProxy(brokers[0].address) as proxy:
        leader = brokers[0].address
        brokers[0].address = proxy.address
        async with connected(brokers[1].address) as log:
            reader = log.reader("s", start=0, options=patient)
            reading = asyncio.create_task(anext(reader))
            await until(lambda: brokers[0].fetches, "it reads")
            await asyncio.sleep(0.5)  # longer than it would go on without hearing anything
            await proxy.cut()
            brokers[0].address = leader
            brokers[0].lead("s", 0, 2)
            async with log.producer("s") as producer:
                await producer.send(b"v")
            assert (await reading).value == b"v"
            await reader.aclose()
    assert stored.end == 1


async def test_a_reader_goes_on_at_the_new_leader_with_the_epoch_of_what_it_read(
    brokers: list[FakeBroker],
) -> None:
    old, _, new = brokers
    old.add_stream("s")
    async with connected(old.address) as log, log.producer("s", options=producer_options()) as producer:
        await producer.send(b"a")
        reader = log.reader("s", options=ReaderOptions(retry=QUICK, heartbeat_ms=20))
        assert (await anext(reader)).offset == 0
        old.fetch_script.append(lambda answer: _refused(answer, errors.NotLeader("moved", leader=2)))
        old.lead("s", 0, 2)
        await producer.send(b"b")
        record = await anext(reader)
        assert (record.offset, record.leader_epoch) == (1, 2)
        position = new.fetches[0].partitions[0].position
        assert (position.offset, position.leader_epoch) == (1, 1)
        await reader.aclose()


@pytest.mark.parametrize(
    "error",
    [errors.StorageFailed("disk"), errors.Unavailable("R15", retry_after_ms=1), errors.Stopping("bye")],
)
async def test_what_one_leader_cannot_serve_now_the_reader_asks_for_again(
    brokers: list[FakeBroker], error: errors.TidelogError
) -> None:
    brokers[0].add_stream("s")
    async with connected(brokers[0].address) as log:
        async with log.producer("s") as producer:
            await producer.send(b"v")
        brokers[0].unary_script.extend([error] * 2)
        brokers[0].fetch_script.extend([lambda answer: _refused(answer, error)] * 3)
        assert [record.value async for record in log.reader("s", follow=False)] == [b"v"]


async def test_partitions_that_lose_their_leader_together_go_on_in_one_call(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the refusals do not come as close together as they are sent.
    monkeypatch.setattr(_fetch_calls, "REGROUP_S", 0.5)
    old, _, new = brokers
    old.add_stream("s", partitions=8)
    async with connected(old.address) as log, log.producer("s", options=producer_options()) as producer:
        reader = log.reader("s", options=ReaderOptions(retry=QUICK, heartbeat_ms=20))
        reading = asyncio.create_task(anext(reader))
        await until(lambda: old.fetches, "it reads")
        for number in range(8):
            old.lead("s", number, 2)
        # Each partition's next heartbeat is the refusal.
        old.fetch_script.extend([lambda answer: _refused(answer, errors.NotLeader("moved", leader=2))] * 8)
        await until(lambda: sum(len(one.partitions) for one in new.fetches) == 8, "all go on elsewhere")
        assert len(new.fetches) <= 2  # the last to leave goes alone
        await producer.send(b"v", partition=3)
        assert (await reading).partition == 3
        await reader.aclose()


async def test_a_lost_position_holds_up_no_other_partition(brokers: list[FakeBroker]) -> None:
    logs = brokers[0].add_stream("s", partitions=2)
    async with connected(brokers[0].address) as log, log.producer("s") as producer:
        for number in range(2):
            await producer.send(b"v", partition=number)
        logs[0].start = 1
        logs[0].batches.clear()
        # Where it goes on is not known as long as its leader is new (R15).
        brokers[0].offsets_refused = errors.Unavailable("R15", retry_after_ms=5)
        lenient = ReaderOptions(retry=QUICK, on_truncated="latest")
        reader = log.reader("s", start=0, options=lenient)
        assert (await anext(reader)).partition == 1
        await until(lambda: brokers[0].calls.get("Offsets", 0) > 1, "it asks where to go on")
        brokers[0].offsets_refused = None
        await producer.send(b"w", partition=1)
        assert (await anext(reader)).value == b"w"
        await until(lambda: len(brokers[0].fetches) == 2, "the other one goes on")
        await producer.send(b"x", partition=0)
        assert (await anext(reader)).offset == 1
        await reader.aclose()


def _refused(answer: log_pb2.FetchResponse, error: errors.TidelogError) -> log_pb2.FetchResponse:
    return log_pb2.FetchResponse(index=answer.index, error=wire.error_to_proto(error))


def _table(number: int) -> pa.Table:
    return pa.table({"value": [b"%d" % number]})
