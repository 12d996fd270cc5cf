"""Whoever goes: what was acknowledged is there, once, and writing goes on."""

from __future__ import annotations

import pytest

import tidelog
from cluster.conftest import STREAM, Writers, missing, read_all
from support.trio import Trio, complete, joined
from support.waiting import until
from tidelog.model import Durability

pytestmark = pytest.mark.slow


async def leader_of(address: str) -> int:
    async with tidelog.connect(address) as client:
        leader = (await client.describe_stream(STREAM)).partitions[0].leader
    assert leader is not None
    return leader


async def create(
    trio: Trio, *, partitions: int = 1, stream: str = STREAM, durability: Durability = Durability.FSYNC
) -> None:
    async with tidelog.connect(trio.addresses[0]) as client:
        await joined(client)
        await client.create_stream(stream, partitions=partitions, durability=durability)
        await complete(client, stream)


async def test_a_leader_that_is_killed_costs_no_record_and_no_error(trio: Trio) -> None:
    await create(trio)
    leader = await leader_of(trio.addresses[0])
    others = [number for number in range(3) if number != leader]
    async with Writers(trio.addresses[others[0]]) as writers:
        trio.brokers[leader].kill()
        await writers.acknowledged_more(200)

    assert writers.errors == []
    assert await leader_of(trio.addresses[others[0]]) in others
    assert missing(writers.acknowledged, await read_all(trio.addresses[others[1]])) == []
    trio.brokers[leader].start()
    async with tidelog.connect(trio.addresses[leader]) as client:
        await complete(client, STREAM)


@pytest.mark.long
async def test_a_rolling_restart_costs_no_record_and_no_error(trio: Trio) -> None:
    await create(trio, partitions=3)
    async with Writers(trio.addresses[0]) as writers:
        for broker in trio.brokers:
            assert broker.stop() == 0
            broker.start()
            async with tidelog.connect(broker.address) as client:
                await complete(client, STREAM)
            await writers.acknowledged_more(100)

    assert writers.errors == []
    assert missing(writers.acknowledged, await read_all(trio.addresses[2])) == []


@pytest.mark.long
async def test_all_brokers_killed_at_once_come_back_with_every_acknowledged_record(trio: Trio) -> None:
    cached = "cached"
    await create(trio, partitions=3)
    await create(trio, partitions=3, stream=cached, durability=Durability.PAGE_CACHE)
    async with Writers(trio.addresses[0]) as writers, Writers(trio.addresses[1], stream=cached) as others:
        trio.kill()
    trio.start_again()

    assert missing(writers.acknowledged, await read_all(trio.addresses[1])) == []
    assert missing(others.acknowledged, await read_all(trio.addresses[2], cached)) == []
    async with tidelog.connect(trio.addresses[2]) as client:
        await complete(client, STREAM)


@pytest.mark.long
async def test_a_broker_whose_disk_is_lost_refills_and_rejoins_voter_or_not(trio: Trio) -> None:
    await create(trio, partitions=3)
    async with Writers(trio.addresses[0]) as writers:
        for number in (2, 0):
            voted = trio.brokers[1].state()["voters"][str(number)]
            trio.brokers[number].kill()
            trio.lose_disk(number)
            trio.brokers[number].start()
            async with tidelog.connect(trio.addresses[1]) as client:
                await complete(client, STREAM)
            # Its id votes all the time, its new disk does so later.
            await until(
                lambda n=str(number), old=voted: trio.brokers[1].state()["voters"].get(n, old) != old,  # type: ignore[misc]
                "it votes with the disk that it has now",
                20,
            )
            await writers.acknowledged_more(50)

    assert missing(writers.acknowledged, await read_all(trio.addresses[1])) == []
    for number in (1, 2):
        # Only the one that lost its disk is left, and it has everything.
        trio.brokers[number].stop()
        trio.brokers[number].start()
    assert missing(writers.acknowledged, await read_all(trio.addresses[0])) == []
