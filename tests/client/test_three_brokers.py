"""A client and a cluster of three processes: leaders are killed, frozen and stopped under load."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidelog
from support.broker import BrokerProcess
from support.trio import Trio, complete, joined
from support.waiting import until
from tidelog import Client, ProducerOptions, blocking, errors


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    trio = Trio(tmp_path_factory.mktemp("trio"))
    try:
        trio.start()
        yield trio
    finally:
        trio.stop()


class Load:
    """One producer that sends numbered records until it is told to stop."""

    def __init__(self, name: str, *, idempotent: bool) -> None:
        self.name = name
        self.idempotent = idempotent
        self.acknowledged: list[bytes] = []
        self.failures: list[errors.TidelogError] = []
        self.stopping = False

    async def run(self, log: Client, stream: str) -> None:
        options = ProducerOptions(idempotent=self.idempotent, linger_ms=1)
        async with log.producer(stream, options=options) as producer, asyncio.TaskGroup() as group:
            number = 0
            while not self.stopping:
                group.create_task(self._one(producer, number))
                number += 1
                await asyncio.sleep(0.005)

    async def _one(self, producer: tidelog.Producer, number: int) -> None:
        value = b"%s %d" % (self.name.encode(), number)
        try:
            await producer.send(value, key=b"%d" % (number % 3))
        except errors.TidelogError as error:
            self.failures.append(error)
        else:
            self.acknowledged.append(value)


def kill(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def stop(broker: BrokerProcess) -> None:
    assert broker.stop() == 0
    broker.start()


@pytest.mark.slow
async def test_leaders_that_die_freeze_or_leave_cost_no_record_and_no_order(trio: Trio) -> None:
    async with tidelog.connect(",".join(trio.addresses)) as log:
        await joined(log)
        await log.create_stream("load", partitions=2)
        await complete(log, "load")
        loads = [Load("steady", idempotent=True), Load("plain", idempotent=False)]
        writing = [asyncio.create_task(load.run(log, "load")) for load in loads]
        seen: list[tidelog.Record] = []
        chosen: list[tidelog.Record] = []

        async def follow(found: list[tidelog.Record], **wanted: Any) -> None:
            reader = log.reader("load", **wanted)
            while True:
                found.append(await anext(reader))

        reading = asyncio.create_task(follow(seen))
        choosing = asyncio.create_task(follow(chosen, keys=[b"1"]))
        for fault in (kill, freeze, stop):
            await until(lambda: len(seen) > 50, "records")
            leader = (await log.describe_stream("load")).partitions[0].leader
            assert leader is not None
            await goes_on(trio.brokers[leader], fault, loads[0], seen)
            await complete(log, "load")
        for load in loads:
            load.stopping = True
        await asyncio.gather(*writing)
        stored = [record async for record in log.reader("load", follow=False)]
        await until(lambda: reading.done() or len(seen) >= len(stored), "the last records", 30)
        wanted = [record for record in stored if record.key == b"1"]
        await until(lambda: choosing.done() or len(chosen) >= len(wanted), "the last chosen records", 30)
        assert not reading.done()
        assert not choosing.done()
        for task in (reading, choosing):
            task.cancel()
        await asyncio.gather(reading, choosing, return_exceptions=True)
    for partition in (0, 1):
        own = [record for record in seen if record.partition == partition]
        assert own == [record for record in stored if record.partition == partition]
        assert [record.offset for record in own] == list(range(len(own)))
        assert [one for one in chosen if one.partition == partition] == [
            one for one in wanted if one.partition == partition
        ]
    values = [record.value or b"" for record in stored]
    assert len(values) == len(set(values)), "a record stands twice"
    for load in loads:
        assert set(load.acknowledged) <= set(values), "an acknowledged record is missing"
    # The plain one is told of the doubt; whoever is idempotent hears nothing of all this.
    assert loads[0].failures == []
    assert [failure for failure in loads[1].failures if failure.definite] == []


def freeze(broker: BrokerProcess) -> None:
    os.kill(broker.pid, signal.SIGSTOP)


async def goes_on(
    broker: BrokerProcess, fault: Callable[[BrokerProcess], None], load: Load, seen: list[tidelog.Record]
) -> None:
    """Has the broker meet the fault; returns when writing and reading go on, and the broker is back."""
    acknowledged, read = len(load.acknowledged), len(seen)
    try:
        happening = asyncio.create_task(asyncio.to_thread(fault, broker))
        await until(lambda: len(load.acknowledged) > acknowledged + 200, "writing goes on", 30)
        await until(lambda: len(seen) > read + 200, "reading goes on", 30)
        await happening
    finally:
        if fault is freeze:
            os.kill(broker.pid, signal.SIGCONT)


async def test_the_blocking_client_follows_leaders_too(trio: Trio) -> None:
    async with tidelog.connect(trio.addresses) as log:
        await joined(log)
        await log.create_stream("blocking")
        await complete(log, "blocking")
    await asyncio.to_thread(write_and_read_across_a_kill, trio)


def write_and_read_across_a_kill(trio: Trio) -> None:
    with blocking.connect(trio.addresses) as log:
        reader = iter(log.reader("blocking"))
        with log.producer("blocking") as producer:
            producer.send(b"before")
            assert next(reader).value == b"before"
            leader = log.describe_stream("blocking").partitions[0].leader
            assert leader is not None
            trio.brokers[leader].kill()
            producer.send_nowait(b"after")
            producer.flush()
            assert next(reader).value == b"after"
            trio.brokers[leader].start()
