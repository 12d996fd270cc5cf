"""M2a: a forced recovery begins a new history; what is of the one before is refused, and starts over."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorum.services import Brokers, Node
from quorum.test_lost_brokers import recovered, values
from tidelog_broker.errors import BrokerError, RunOver
from tidelog_broker.offline.quorum_recovery import EPOCH_STRIDE, PRODUCER_ID_STRIDE, TERM_STRIDE, start_over
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.files.os_files import OsFiles


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    made = Brokers(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


async def over(node: Node) -> str:
    """Starts a broker whose run must end, and says why it does."""
    with pytest.raises(RunOver) as raised:
        await node.start()
    node.service = None
    node.forget_ports()
    return str(raised.value)


class Lost:
    """A cluster of which most voters are lost, and a voter and a learner are left, stopped."""

    def __init__(self, behind: Node, other: Node) -> None:
        self.behind = behind
        """A voter that lacks the newest changes."""
        self.other = other
        """A broker that has them."""


async def most_are_lost(brokers: Brokers, *, other_votes: bool, other_runs: bool = False) -> Lost:
    """`behind` was away while the streams s0 to s2 were made; then all disks but two are lost."""
    await brokers.start(5 if other_votes else 4)
    if other_votes:
        await brokers.eventually(lambda: len(brokers[0].quorum.voters) == 5)
    voters = brokers[0].quorum.voters
    async with brokers.client() as client:
        followers = [n for n in brokers.nodes if n.quorum.active is None]
        behind = next(n for n in followers if n.id in voters)
        other = next(n for n in followers if (n.id in voters) == other_votes and n is not behind)
        await client.create_stream("old", replication_factor=len(brokers.nodes))
        await client.create_stream("lonely", replication_factor=1, replicas=[[other.id]])
        for name in ("old", "lonely"):
            async with client.producer(name) as producer:
                await producer.send(b"before")
    await behind.stop()
    rest = [n for n in brokers.nodes if n is not behind]
    for _ in range(2):
        # Elections of which the one that is away hears nothing.
        await other.restart()
    async with brokers.client(*(n.id for n in rest)) as client:
        for number in range(3):
            await client.create_stream(f"s{number}", replication_factor=2)
            async with client.producer(f"s{number}") as producer:
                await producer.send(b"new")
        async with client.producer("lonely") as producer:
            await producer.send(b"new")
    newest = max(n.quorum.image.version for n in rest)
    await brokers.eventually(lambda: all(n.quorum.image.version >= newest for n in rest))
    controls = next(n for n in rest if n.quorum.active is not None)
    # First what is to stay as it is: the others know of no change that it lacks.
    for node in dict.fromkeys((other, *(n for n in rest if n is not controls), controls)):
        if node is not other or not other_runs:
            await node.stop()
    for node in rest:
        if node is not other:
            shutil.rmtree(node.data)
    return Lost(behind, other)


def stream_folders(node: Node) -> set[str]:
    return {path.name.partition("~")[0] for path in (node.data / "streams").iterdir()}


async def test_m2a_a_learner_that_knows_more_than_the_recovered_voter_starts_over(brokers: Brokers) -> None:
    lost = await most_are_lost(brokers, other_votes=False)
    behind, learner = lost.behind, lost.other
    known = recovered(learner.data)
    folders = stream_folders(learner)

    report = recovered(behind.data, force=True)
    assert known.last_index > report.last_index, "the learner knows more"
    await behind.start()
    reason = await over(learner)
    await learner.start()

    assert "was recovered by force" in reason
    assert "Start the broker again" in reason
    image = learner.quorum.image
    assert sorted(stream.name for stream in image.streams.values()) == ["lonely", "old"]
    await brokers.eventually(lambda: learner.quorum.image.version >= behind.quorum.image.version)
    assert stream_folders(learner) >= folders, "no records are removed"
    assert (learner.data / "raft.superseded-1").is_dir(), "nor what it knew"
    assert learner.service is not None
    served = {one.name for one in learner.service.broker.partitions.values()}
    assert served == {"lonely", "old"}, "its replicas go on in their own logs, and the rest is kept as strays"
    assert not list((learner.data / "streams").glob("*/.stray-*"))
    async with brokers.client() as client:

        async def led() -> bool:
            return (await client.describe_stream("old")).partitions[0].leader in (behind.id, learner.id)

        await brokers.eventually(led)
        assert await values(client, "old") == [b"before"]
        async with client.producer("old") as producer:
            await producer.send(b"after")
        assert await values(client, "old") == [b"before", b"after"]
    await learner.stop()
    strays = {path.split("/")[-2].partition("~")[0] for path in recovered(learner.data).strays}
    assert strays == folders - {"lonely", "old"}, "the command names them"


async def test_m2a_a_log_with_later_epochs_than_the_recovered_metadata_goes_on(brokers: Brokers) -> None:
    lost = await most_are_lost(brokers, other_votes=False)
    recovered(lost.behind.data, force=True)
    await lost.behind.start()
    await over(lost.other)

    await lost.other.start()

    async with brokers.client() as client:
        assert await values(client, "lonely") == [b"before", b"new"]
        async with client.producer("lonely") as producer:
            await producer.send(b"after")
        assert await values(client, "lonely") == [b"before", b"new", b"after"]
    assert lost.other.service is not None
    (log,) = (one.log for one in lost.other.service.broker.partitions.values() if one.name == "lonely")
    *forgotten, raised = (start.epoch for start in log.epochs)
    assert len(forgotten) > 1
    assert raised > max(forgotten) + EPOCH_STRIDE // 2


@pytest.mark.long
async def test_m2a_a_broker_that_ran_on_meanwhile_ends(brokers: Brokers) -> None:
    lost = await most_are_lost(brokers, other_votes=False, other_runs=True)
    service = lost.other.service
    assert service is not None
    recovered(lost.behind.data, force=True)

    await lost.behind.start()

    await brokers.eventually(service.over.done)
    assert "was recovered by force" in str(service.over.result())
    assert not service.broker.failed.done(), "its disk is well"
    await lost.other.restart()
    await brokers.eventually(lambda: lost.other.quorum.image.version >= lost.behind.quorum.image.version)
    assert lost.other.quorum.image.stream_named("s0") is None


async def test_m2a_a_recovery_never_gives_out_epochs_terms_and_producer_ids_again(
    brokers: Brokers,
) -> None:
    lost = await most_are_lost(brokers, other_votes=False)
    report = recovered(lost.behind.data, force=True)

    await lost.behind.start()

    quorum = lost.behind.quorum
    stream = quorum.image.stream_named("old")
    assert stream is not None
    (partition,) = stream.partitions
    assert partition.leader_epoch > EPOCH_STRIDE
    assert partition.partition_epoch > EPOCH_STRIDE
    assert quorum.image.next_producer_id > PRODUCER_ID_STRIDE
    assert quorum._driver.node.term > TERM_STRIDE
    (recovery,) = quorum._driver.node.configuration.recoveries
    assert (recovery.index, recovery.term) == (report.last_index, report.last_term)


async def test_m2a_a_voter_that_knows_more_is_refused_until_somebody_gives_that_up(brokers: Brokers) -> None:
    brokers.voters = 5
    lost = await most_are_lost(brokers, other_votes=True)
    behind, voter = lost.behind, lost.other
    recovered(behind.data, force=True)
    await behind.start()

    reasons = {await over(voter) for _ in range(2)}

    (reason,) = reasons
    assert "This broker voted" in reason
    assert f"cluster-recover --data-dir {voter.data} --start-over" in reason
    assert not (voter.data / "raft.superseded-1").exists()
    directory = DataDirectory.open(OsFiles(), str(voter.data), reserve_bytes=0)
    done = start_over(directory)
    directory.close()
    assert done.set_aside == str(voter.data / "raft.superseded-1")
    await voter.start()
    await brokers.eventually(lambda: voter.quorum.image.version >= behind.quorum.image.version)
    assert len(behind.quorum.image.streams) == 2


@pytest.mark.long
async def test_m2a_two_recoveries_on_two_voters_are_two_clusters_that_refuse_each_other(
    brokers: Brokers,
) -> None:
    brokers.voters = 5
    lost = await most_are_lost(brokers, other_votes=True)
    recovered(lost.behind.data, force=True)
    recovered(lost.other.data, force=True)
    await lost.behind.start()

    with pytest.raises(BrokerError, match="two recoveries were forced, each on another voter"):
        await lost.other.start()

    lost.other.service = None
    assert len(lost.behind.quorum.image.streams) == 2
