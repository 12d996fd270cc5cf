"""N5: whoever writes without idempotence hears no error while leaders and replicas move by plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

import tidelog
from quorum.services import Brokers, started
from support.waiting import until, until_true
from tidelog import cluster_admin
from tidelog_broker.api import admin_replicas
from tidelog_broker.core.metadata.controller import handovers
from tidelog_broker.core.metadata.controller.handovers import SETTLE_MS_MAX, Led
from tidelog_broker.hosting.handover import HandingOver
from tidelog_broker.writing.partition import Partition

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

STREAM = "moved"
MANY = "many"
WRITERS = 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brokers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Brokers]:
    async with started(tmp_path_factory.mktemp("brokers"), 4) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(brokers: Brokers) -> AsyncIterator[tidelog.Client]:
    async with brokers.client() as made:
        await made.create_stream(STREAM, replication_factor=3)
        await made.reassign({(STREAM, 0): (0, 1, 2)})
        await settled(made, (0, 1, 2))
        yield made
        await made.delete_stream(STREAM)


async def settled(client: tidelog.Client, replicas: tuple[int, ...]) -> None:
    """The reassignment is over, and everybody is in sync; whoever answers may not have heard of it yet."""

    async def whole() -> bool:
        (partition,) = (await client.describe_stream(STREAM)).partitions
        moved = partition.replicas == replicas and set(partition.isr) == set(replicas)
        return moved and not await client.list_reassignments()

    await until_true(whole, "replicas have moved, and are in sync")


async def leader(client: tidelog.Client) -> int | None:
    return (await client.describe_stream(STREAM)).partitions[0].leader


async def here(brokers: Brokers, broker: int) -> tuple[Partition, HandingOver]:
    """What a broker leads of the stream, and who hands it over."""
    service = brokers[broker].service
    assert service is not None
    partitions = service.broker.partitions

    def led() -> list[Partition]:
        return [one for one in partitions.values() if one.name == STREAM and one.leads]

    await until(lambda: led(), "the leader knows that it leads")
    (partition,) = led()
    return partition, service.assembly.handing_over


@asynccontextmanager
async def written(client: tidelog.Client) -> AsyncIterator[list[bytes]]:
    """Writers that cannot repeat what they do not know of; what was acknowledged. Raises what one is told."""
    acknowledged: list[bytes] = []
    over = asyncio.Event()

    async def write(name: int) -> None:
        async with client.producer(STREAM, idempotent=False) as producer:
            number = 0
            while not over.is_set():
                value = b"%d-%d" % (name, number)
                await producer.send(value)
                acknowledged.append(value)
                number += 1

    async with asyncio.TaskGroup() as group:
        for name in range(WRITERS):
            group.create_task(write(name))
        yield acknowledged
        over.set()


async def values(client: tidelog.Client) -> list[bytes]:
    return [record.value or b"" async for record in client.reader(STREAM, follow=False)]


async def test_leaders_that_change_by_request_leave_nobody_in_doubt(client: tidelog.Client) -> None:
    async with written(client) as acknowledged:
        for replicas in ((1, 2, 0), (2, 0, 1), (0, 1, 2)) * 3:
            await client.reassign({(STREAM, 0): replicas})
            await settled(client, replicas)
            (elected,) = await client.elect_preferred([STREAM])
            assert elected.partition.leader == replicas[0]

    assert sorted(await values(client)) == sorted(acknowledged)
    assert len(acknowledged) > 9


async def test_replicas_that_move_with_their_leader_leave_nobody_in_doubt(client: tidelog.Client) -> None:
    async with written(client) as acknowledged:
        for replicas in ((3, 1, 2), (0, 1, 2)) * 3:
            await client.reassign({(STREAM, 0): replicas})
            await settled(client, replicas)
            assert await leader(client) in replicas

    assert sorted(await values(client)) == sorted(acknowledged)
    assert len(acknowledged) > 6


async def test_a_stop_that_is_prepared_leaves_nobody_in_doubt(
    brokers: Brokers, client: tidelog.Client
) -> None:
    stopping = await leader(client)
    assert stopping is not None

    async with written(client) as acknowledged:
        assert (await client.prepare_stop(stopping, 10)).ready
        assert await leader(client) != stopping
        await brokers[stopping].restart()
        await settled(client, (0, 1, 2))

    assert sorted(await values(client)) == sorted(acknowledged)


async def test_a_leader_that_does_not_settle_is_deposed_all_the_same(
    client: tidelog.Client, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await leader(client)
    assert first is not None
    monkeypatch.setattr(brokers[first].assembly, "handovers_requested", lambda leaderships: None)
    loop = asyncio.get_running_loop()
    await client.reassign({(STREAM, 0): (1, 2, 0)} if first != 1 else {(STREAM, 0): (2, 0, 1)})
    began = loop.time()

    (elected,) = await client.elect_preferred([STREAM])

    assert elected.partition.leader != first
    assert loop.time() - began >= SETTLE_MS_MAX / 1000


@pytest.mark.parametrize("milliseconds", [5000, 50], ids=["by one request", "by many"])
async def test_many_leaders_change_a_few_at_a_time_and_each_once(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    monkeypatch.setattr(handovers, "SETTLING_MAX", 2)
    monkeypatch.setattr(admin_replicas, "ELECT_MS_MAX", milliseconds)
    monkeypatch.setattr(cluster_admin, "ELECT_REQUESTS_MAX", 1000)
    async with brokers.client() as client:
        await client.create_stream(MANY, partitions=12, replication_factor=3)
        before = (await client.describe_stream(MANY)).partitions
        turned = {(MANY, one.partition): (*one.replicas[1:], one.replicas[0]) for one in before}
        await client.reassign(turned)

        elected = await client.elect_preferred([MANY])

        leaders = {one.partition.partition: one.partition.leader for one in elected}
        assert len(elected) == 12
        assert leaders == {number: replicas[0] for (_, number), replicas in turned.items()}
        assert {one.partition.leader_epoch for one in elected} == {before[0].leader_epoch + 1}
        await client.delete_stream(MANY)


async def test_a_leader_that_keeps_its_place_takes_appends_again(
    client: tidelog.Client, brokers: Brokers
) -> None:
    first = await leader(client)
    assert first is not None
    partition, handing_over = await here(brokers, first)

    handing_over.wished([Led(*partition.key, partition.leader_epoch)])
    assert partition.leaving
    async with client.producer(STREAM, idempotent=False) as producer:
        receipt = await producer.send(b"it waited")

    assert receipt.offset >= 0
    assert (await leader(client), partition.leaving) == (first, False)


async def test_a_wish_for_another_epoch_is_passed_over(client: tidelog.Client, brokers: Brokers) -> None:
    first = await leader(client)
    assert first is not None
    partition, handing_over = await here(brokers, first)

    handing_over.wished([Led(*partition.key, 10_000), Led(bytes(16), 0, 1)])

    assert not partition.leaving
