"""Brokers that are gone for good: what is shown of them, what is given up, and how a cluster goes on."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tidelog
from quorum.services import CLUSTER, Brokers
from tidelog.errors import InvalidRequest
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.offline.formatting import format_joiner
from tidelog_broker.offline.quorum_losses import QuorumReport
from tidelog_broker.offline.quorum_recovery import recover_quorum
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.files.os_files import OsFiles


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    made = Brokers(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


async def values(client: tidelog.Client, name: str) -> list[bytes | None]:
    return [record.value async for record in client.reader(name, follow=False)]


async def test_a_broker_that_is_gone_is_shown_and_what_only_it_held_is_given_up_by_command(
    brokers: Brokers,
) -> None:
    await brokers.start(3)
    async with brokers.client(0, 1) as client:
        await client.create_stream("copied", replication_factor=3)
        await client.cordon(0)
        await client.cordon(1)
        await client.create_stream("lonely", replication_factor=1)
        await client.uncordon(0)
        await client.uncordon(1)
        for name in ("copied", "lonely"):
            async with client.producer(name) as producer:
                await producer.send(b"x")
        await brokers[2].stop()

        async def fenced() -> bool:
            return [one.state for one in (await client.describe_cluster()).standings][2] == "fenced"

        await brokers.eventually(fenced)
        cluster = await client.describe_cluster()
        assert [one.label for one in cluster.troubled] == ["copied/0", "lonely/0"]
        assert (cluster.under_replicated_count, cluster.leaderless_count) == (2, 1)
        assert cluster.standings[2].out_of_sync == 2
        gone = [one for one in await client.describe_replicas() if one.broker_id == 2]
        assert {(one.state, one.in_sync, one.lag) for one in gone} == {("unreachable", False, None)}

        await client.unregister_broker(2)
        assert (await client.describe_cluster()).leaderless_count == 1
        with pytest.raises(InvalidRequest, match="the leader must be one of its replicas"):
            await client.elect_unclean("lonely", 0, 0)
        await client.reassign({("lonely", 0): [0]})
        (elected,) = await client.elect_unclean("lonely", 0, 0)
        assert elected.partition.leader == 0

        async def led() -> bool:
            stream = await client.describe_stream("lonely")
            return stream.partitions[0].replicas == (0,)

        await brokers.eventually(led)
        async with client.producer("lonely") as producer:
            await producer.send(b"y")
        assert await values(client, "lonely") == [b"y"]
        assert await values(client, "copied") == [b"x"]


async def test_a_broker_that_is_alone_can_neither_be_drained_nor_go(brokers: Brokers) -> None:
    await brokers.start(1)
    async with brokers.client() as client:
        with pytest.raises(InvalidRequest, match="broker 0 is the only broker"):
            await client.drain(0)
        with pytest.raises(InvalidRequest, match="the only voter of the metadata"):
            await client.unregister_broker(0)
        with pytest.raises(InvalidRequest, match="it is the only voter"):
            await client.remove_voter(0)
        with pytest.raises(InvalidRequest, match="there is only 1 broker"):
            await client.create_stream("wide", replication_factor=2)


async def test_m2_one_voter_that_is_left_goes_on_by_force_and_the_cluster_grows_again(
    brokers: Brokers,
) -> None:
    await brokers.start(3)
    async with brokers.client() as client:
        await client.create_stream("orders", replication_factor=3)
        async with client.producer("orders") as producer:
            for number in range(5):
                await producer.send(str(number).encode())

        async def replicated() -> bool:
            return [one.lag for one in await client.describe_replicas("orders")] == [0, 0, 0]

        await brokers.eventually(replicated)
    for node in reversed(brokers.nodes):
        await node.stop()
    for node in brokers.nodes[1:]:
        shutil.rmtree(node.data)
    left = brokers[0]

    looked = recovered(left.data)
    done = recovered(left.data, force=True)
    again = recovered(left.data, force=True)

    assert (looked.voters, looked.brokers, looked.streams) == ((0, 1, 2), (0, 1, 2), 1)
    assert (looked.forced, looked.alone) == (False, False)
    assert done == looked._replace(forced=True)
    assert (again.forced, again.alone, again.last_index) == (False, True, done.last_index + 2)
    assert again.last_term > done.last_term
    await left.start()
    assert left.quorum.voters == (0,)
    for node in brokers.nodes[1:]:
        # Another disk, under the number of one that was lost.
        await node.start()
    await brokers.eventually(lambda: left.quorum.voters == (0, 1, 2))
    async with brokers.client() as client:

        async def whole() -> bool:
            return (await client.describe_cluster()).under_replicated_count == 0

        await brokers.eventually(whole)
        assert await values(client, "orders") == [b"0", b"1", b"2", b"3", b"4"]
        async with client.producer("orders") as producer:
            await producer.send(b"5")
        assert await values(client, "orders") == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_a_quorum_is_not_forced_where_that_would_be_wrong(brokers: Brokers, tmp_path: Path) -> None:
    await brokers.start(2)
    follower = brokers[1].data
    with pytest.raises(DataDirectoryError, match="in use by another broker"):
        recovered(brokers[0].data, force=True)
    for node in reversed(brokers.nodes):
        await node.stop()

    with pytest.raises(DataDirectoryError, match="as far as it knows, the voters are brokers 0: "):
        recovered(follower, force=True)
    assert recovered(follower).voters == (0,), "it may be looked at all the same"
    joiner = tmp_path / "joiner"
    format_joiner(OsFiles(), str(joiner), cluster_id=CLUSTER, broker_id=7, directory_id=b"j" * 16)
    with pytest.raises(DataDirectoryError, match="is empty: this broker has received nothing"):
        recovered(joiner, force=True)


def recovered(path: Path, *, force: bool = False) -> QuorumReport:
    directory = DataDirectory.open(OsFiles(), str(path), reserve_bytes=0)
    try:
        return recover_quorum(directory, force=force)
    finally:
        directory.close()
