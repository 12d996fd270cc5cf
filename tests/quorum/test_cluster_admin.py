"""What administrators ask of a cluster, of any of its brokers: answered, done, or refused with a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

import tidelog
from quorum.services import WAIT_SECONDS, Brokers, started
from support.api import Api, refusal
from tidelog.errors import InvalidRequest, PartitionNotFound, StreamNotFound, TidelogError, VersionConflict
from tidelog.model import ClusterDescription, PartitionVersion
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_proto import admin_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brokers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Brokers]:
    """Four, of which three vote; they have no streams when a test begins, and nobody is cordoned."""
    async with started(tmp_path_factory.mktemp("brokers"), 4, catch_up_bytes_per_second=1 << 20) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(brokers: Brokers) -> AsyncIterator[tidelog.Client]:
    """Of a broker that is not the controller."""
    asked = next(node.id for node in brokers.running if node.quorum.active is None)
    async with brokers.client(asked) as made:
        yield made
        for broker in range(4):
            await made.uncordon(broker)
        for stream in await made.list_streams():
            await made.delete_stream(stream.name)


def states(cluster: ClusterDescription) -> dict[int, str]:
    return {one.broker_id: one.state for one in cluster.standings}


async def test_a_cluster_describes_its_brokers_and_what_is_in_trouble(client: tidelog.Client) -> None:
    await client.create_stream("described", partitions=2)

    cluster = await client.describe_cluster()

    assert states(cluster) == dict.fromkeys(range(4), "active")
    assert [one.voter for one in cluster.standings].count(True) == 3
    assert sum(one.replicas for one in cluster.standings) == 6
    assert sum(one.leaders for one in cluster.standings) == 2
    assert (cluster.under_replicated_count, cluster.leaderless_count, cluster.troubled) == (0, 0, ())


async def test_the_replicas_of_all_brokers_are_described_by_asking_each(
    brokers: Brokers, client: tidelog.Client
) -> None:
    stream = await client.create_stream("copies", replication_factor=3)
    async with client.producer("copies") as producer:
        await producer.send(b"x")

    async def replicated() -> bool:
        return [one.lag for one in await client.describe_replicas("copies")] == [0, 0, 0]

    await brokers.eventually(replicated)
    found = await client.describe_replicas("copies")
    assert sorted(one.role for one in found) == ["follower", "follower", "leader"]
    assert {one.broker_id for one in found} == set(stream.partitions[0].replicas)
    assert all(one.in_sync and one.state == "online" and one.log_end_offset == 1 for one in found)
    with pytest.raises(StreamNotFound):
        await client.describe_replicas("nothing")


async def test_m5_files_of_a_deleted_stream_go_on_every_broker_once_that_is_confirmed(
    brokers: Brokers, client: tidelog.Client
) -> None:
    asked: list[int] = []
    for node in brokers.running:
        assert node.service is not None
        maintenance = node.service.broker._maintenance

        async def newest(
            broker: int = node.id, before: Callable[[], Awaitable[ClusterImage]] = maintenance._newest
        ) -> ClusterImage:
            image = await before()
            asked.append(broker)
            return image

        maintenance._newest = newest
    await client.create_stream("gone", replication_factor=4)
    places = [node.data / "streams" for node in brokers.nodes]
    await brokers.eventually(lambda: all(any(place.glob("gone~*")) for place in places))
    folders = [next(place.glob("gone~*")) for place in places]

    await client.delete_stream("gone")

    await brokers.eventually(lambda: not any(path for folder in folders for path in folder.parent.iterdir()))
    assert set(asked) == {0, 1, 2, 3}


async def test_a_cordoned_broker_gets_no_new_replicas(client: tidelog.Client) -> None:
    await client.cordon(3)
    await client.cordon(3)
    stream = await client.create_stream("elsewhere", partitions=4, replication_factor=3)

    assert all(3 not in partition.replicas for partition in stream.partitions)
    assert states(await client.describe_cluster())[3] == "cordoned"
    await client.uncordon(3)
    assert states(await client.describe_cluster())[3] == "active"


async def test_what_rests_on_a_broker_or_a_partition_as_it_was_is_refused(client: tidelog.Client) -> None:
    stream = await client.create_stream("rests", replication_factor=2)
    (partition,) = stream.partitions
    seen = {one.broker_id: one.version for one in (await client.describe_cluster()).standings}
    away = [broker for broker in range(4) if broker not in partition.replicas]
    expected = {("rests", 0): PartitionVersion(stream.stream_id, partition.partition_epoch)}

    await client.cordon(3, expected_version=seen[3])
    with pytest.raises(VersionConflict, match="broker 3 is at version"):
        await client.uncordon(3, expected_version=seen[3])
    with pytest.raises(VersionConflict, match="broker 3 is at version"):
        await client.unregister_broker(3, only_if_empty=True, expected_version=seen[3])
    found = {one.broker_id: one.version for one in (await client.describe_cluster()).standings}
    await client.uncordon(3, expected_version=found[3])
    assert {**found, 3: seen[3]} == seen

    other = {("rests", 0): PartitionVersion(bytes(16), partition.partition_epoch)}
    with pytest.raises(StreamNotFound, match="has another id than the requested stream"):
        await client.reassign({("rests", 0): away}, expected=other)
    assert await client.reassign({("rests", 0): away}, expected=expected)
    with pytest.raises(VersionConflict, match="rests/0 is in partition epoch"):
        await client.reassign({("rests", 0): partition.replicas}, expected=expected)


async def test_replicas_move_to_where_they_are_told_and_records_with_them(
    brokers: Brokers, client: tidelog.Client
) -> None:
    stream = await client.create_stream("moved", replication_factor=2)
    async with client.producer("moved") as producer:
        for number in range(10):
            await producer.send(str(number).encode())
    origin = stream.partitions[0].replicas
    target = tuple(broker for broker in range(4) if broker not in origin)

    would = await client.reassign({("moved", 0): target}, validate_only=True)
    assert (await client.describe_stream("moved")).partitions[0].replicas == origin
    (begun,) = await client.reassign({("moved", 0): target})

    assert [one.partition.target for one in would] == [target]
    assert (begun.partition.adding, begun.partition.removing) == (target, origin)

    async def arrived() -> bool:
        return not await client.list_reassignments(["moved"])

    await brokers.eventually(arrived)
    (partition,) = (await client.describe_stream("moved")).partitions
    assert (partition.replicas, set(partition.isr)) == (target, set(target))
    values = [record.value async for record in client.reader("moved", follow=False)]
    assert values == [str(number).encode() for number in range(10)]


async def test_a_reassignment_is_called_off(client: tidelog.Client) -> None:
    stream = await client.create_stream("back", replication_factor=1)
    (home,) = stream.partitions[0].replicas
    other = (home + 1) % 4
    async with client.producer("back") as producer:
        # More than moves in a second.
        for _ in range(40):
            await producer.send(bytes(900_000))
    await client.reassign({("back", 0): (other,)})
    (moving,) = await client.list_reassignments()

    (cancelled,) = await client.cancel_reassignment([("back", 0)])

    assert moving.partition.replicas == (other, home)
    assert (cancelled.partition.replicas, cancelled.partition.adding) == ((home,), ())
    assert await client.list_reassignments() == []
    assert await client.cancel_reassignment() == []


async def test_what_moves_is_throttled_until_it_is_said_otherwise(
    brokers: Brokers, client: tidelog.Client
) -> None:
    stream = await client.create_stream("slow", replication_factor=1)
    (home,) = stream.partitions[0].replicas
    async with client.producer("slow") as producer:
        for _ in range(40):
            await producer.send(bytes(900_000))

    # Nine minutes for what is there.
    await client.throttle(64 << 10)
    await client.reassign({("slow", 0): ((home + 1) % 4,)})
    assert (await client.describe_cluster()).throttle_bytes_per_second == 64 << 10
    (moving,) = await client.list_reassignments()
    assert moving.partition.isr == (home,)

    async def begun() -> bool:
        return any(one.log_end_offset for one in await client.describe_replicas("slow") if not one.leader)

    await brokers.eventually(begun)
    await client.throttle(1 << 30)

    async def arrived() -> bool:
        return not await client.list_reassignments()

    await brokers.eventually(arrived)
    await client.throttle(0)
    assert (await client.describe_cluster()).throttle_bytes_per_second == 0
    with pytest.raises(InvalidRequest, match="bytes_per_second is 1; it must be at least 65536"):
        await client.throttle(1)


async def test_a_drained_broker_is_emptied_loses_its_vote_and_comes_back(
    brokers: Brokers, client: tidelog.Client
) -> None:
    await client.create_stream("drained", partitions=6, replication_factor=3)
    voters = (await client.describe_cluster()).voters
    leaving = voters[-1]

    first = await client.drain(leaving)
    assert first.replicas_left > 0

    async def empty() -> bool:
        return (await client.drain(leaving)).replicas_left == 0

    await brokers.eventually(empty)

    async def voted_out() -> bool:
        cluster = await client.describe_cluster()
        return leaving not in cluster.voters and len(cluster.voters) == 3

    await brokers.eventually(voted_out)
    cluster = await client.describe_cluster()
    assert states(cluster)[leaving] == "cordoned"
    assert all(
        leaving not in partition.replicas
        for partition in (await client.describe_stream("drained")).partitions
    )
    await client.uncordon(leaving)


async def test_replicas_spread_over_a_broker_that_is_back(brokers: Brokers, client: tidelog.Client) -> None:
    await client.cordon(0)
    await client.create_stream("uneven", partitions=8, replication_factor=1)
    await client.uncordon(0)

    limited = await client.spread(["uneven"], moves_max=1, validate_only=True)
    begun = await client.spread(["uneven"])

    assert len(limited) == 1
    assert len(begun) == 2

    async def arrived() -> bool:
        return not await client.list_reassignments()

    await brokers.eventually(arrived)
    stream = await client.describe_stream("uneven")
    assert [partition.replicas for partition in stream.partitions].count((0,)) == 2
    assert await client.spread(["uneven"]) == []


async def test_preferred_leaders_get_their_leadership_back(brokers: Brokers, client: tidelog.Client) -> None:
    await client.create_stream("led", replication_factor=3)

    async def elected() -> bool:
        # A busy machine may elect another leader at any moment, also the preferred one.
        partition = (await client.describe_stream("led")).partitions[0]
        preferred, *others = sorted(partition.replicas, key=lambda broker: broker == partition.leader)
        await client.reassign({("led", 0): (preferred, *others)})
        found = await client.elect_preferred(["led"])
        assert all((one.label, one.partition.leader) == ("led/0", preferred) for one in found)
        return bool(found)

    async def at_home() -> bool:
        return await client.elect_preferred(["led"]) == []

    await brokers.eventually(elected)
    await brokers.eventually(at_home)


async def test_a_vote_moves_to_the_broker_that_is_named(brokers: Brokers, client: tidelog.Client) -> None:
    cluster = await client.describe_cluster()
    (observer,) = {0, 1, 2, 3} - set(cluster.voters)
    leaving = next(voter for voter in cluster.voters if voter != cluster.controller)

    await client.remove_voter(leaving)

    async def moved() -> bool:
        voters = (await client.describe_cluster()).voters
        return len(voters) == 3 and leaving not in voters

    await brokers.eventually(moved)
    cluster = await client.describe_cluster()
    assert observer in cluster.voters
    assert next(one.vote for one in cluster.standings if one.broker_id == leaving) == "unwanted"

    await client.add_voter(leaving)

    async def back() -> bool:
        voters = (await client.describe_cluster()).voters
        return len(voters) == 3 and leaving in voters

    await brokers.eventually(back)


async def test_brokers_are_let_go_one_after_the_other(brokers: Brokers, client: tidelog.Client) -> None:
    stream = await client.create_stream("kept", replication_factor=4, min_insync_replicas=3)
    lonely = await client.create_stream("lonely", replication_factor=1)
    (first,) = lonely.partitions[0].replicas
    second = next(broker for broker in stream.partitions[0].replicas if broker != first)

    let_go = await client.prepare_stop(first, 5)
    kept_waiting = await client.prepare_stop(second)

    assert let_go.ready
    assert [(one.name, one.reason, one.blocks) for one in let_go.hindrances] == [
        ("lonely", "no copy to spare", False)
    ]
    assert states(await client.describe_cluster())[first] == "stopping"
    assert (await client.describe_stream("kept")).partitions[0].leader != first
    assert not kept_waiting.ready
    assert [(one.name, one.reason, one.blocks) for one in kept_waiting.hindrances] == [
        ("kept", "too few in sync", True)
    ]

    waiting = asyncio.create_task(client.prepare_stop(second, WAIT_SECONDS))
    await brokers[first].restart()
    assert (await waiting).ready
    await brokers[second].restart()


async def test_a_prepared_stop_is_undone(brokers: Brokers, client: tidelog.Client) -> None:
    await client.create_stream("stays", replication_factor=4, min_insync_replicas=2)
    (leader,) = [p.leader for p in (await client.describe_stream("stays")).partitions]
    assert leader is not None
    assert (await client.prepare_stop(leader, 5)).ready

    await client.cancel_stop(leader)
    await client.cancel_stop(leader)

    assert states(await client.describe_cluster())[leader] == "active"

    async def leads_again() -> bool:
        # Not before it is in sync again, which it need not be after it has handed over.
        await client.elect_preferred(["stays"])
        return (await client.describe_stream("stays")).partitions[0].leader == leader

    await brokers.eventually(leads_again)


@pytest.mark.parametrize(
    ("rpc", "request_", "sentence"),
    [
        ("Cordon", admin_pb2.CordonRequest(broker_id=9), "broker 9 is not registered"),
        ("Cordon", admin_pb2.CordonRequest(), "names no broker"),
        ("Uncordon", admin_pb2.UncordonRequest(broker_id=9), "broker 9 is not registered"),
        ("Drain", admin_pb2.DrainRequest(broker_id=9), "broker 9 is not registered"),
        ("PrepareStop", admin_pb2.PrepareStopRequest(broker_id=9), "broker 9 is not registered"),
        (
            "PrepareStop",
            admin_pb2.PrepareStopRequest(broker_id=1, timeout_ms=1 << 40),
            "give at most 600000",
        ),
        ("CancelStop", admin_pb2.CancelStopRequest(broker_id=9), "broker 9 is not registered"),
        ("UnregisterBroker", admin_pb2.UnregisterBrokerRequest(broker_id=9), "broker 9 is not registered"),
        ("AddVoter", admin_pb2.AddVoterRequest(broker_id=9), "broker 9 is not registered"),
        ("RemoveVoter", admin_pb2.RemoveVoterRequest(broker_id=9), "broker 9 is not registered"),
        ("Reassign", admin_pb2.ReassignRequest(), "give either targets"),
        (
            "Reassign",
            admin_pb2.ReassignRequest(spread=admin_pb2.Spread(brokers=[9])),
            "broker 9 is not registered",
        ),
        (
            "ElectLeaders",
            admin_pb2.ElectLeadersRequest(unclean=admin_pb2.UncleanElection(name="x", partition=0)),
            "needs broker_id",
        ),
        (
            "ElectLeaders",
            admin_pb2.ElectLeadersRequest(names=["a"], unclean=admin_pb2.UncleanElection(name="x")),
            "leave names out",
        ),
    ],
)
async def test_nonsense_is_refused_with_a_sentence(
    brokers: Brokers, rpc: str, request_: object, sentence: str
) -> None:
    asked = next(node for node in brokers.running if node.quorum.active is None)
    async with Api(asked.address) as api:
        refused = await refusal(getattr(api.admin, rpc)(request_))

    assert sentence in refused.message
    assert refused.code == "INVALID_REQUEST"


async def test_nonsense_about_a_stream_is_refused_with_a_sentence(client: tidelog.Client) -> None:
    await client.cordon(3)
    stream = await client.create_stream("sane", replication_factor=2)
    leader, follower = stream.partitions[0].replicas

    async def refused(call: Awaitable[object], kind: type[TidelogError] = InvalidRequest) -> str:
        with pytest.raises(kind) as raised:
            await call
        return str(raised.value)

    assert "must be 1 to 15 different brokers" in await refused(client.reassign({("sane", 0): []}))
    assert "must be 1 to 15 different brokers" in await refused(client.reassign({("sane", 0): [1, 1]}))
    assert "broker 9 is not registered" in await refused(client.reassign({("sane", 0): [0, 9]}))
    assert "broker 3 is cordoned" in await refused(client.reassign({("sane", 0): [leader, 3]}))
    assert "has only partition 0, not 7" in await refused(
        client.reassign({("sane", 7): [0, 1]}), PartitionNotFound
    )
    assert "has only partition 0, not 7" in await refused(
        client.cancel_reassignment([("sane", 7)]), PartitionNotFound
    )
    assert "there is no stream" in await refused(client.spread(["nothing"]), StreamNotFound)
    assert "2 replicas need 2 brokers" in await refused(client.spread(["sane"], brokers=[0]))
    assert "lose records for nothing" in await refused(client.elect_unclean("sane", 0, follower))
    assert "is alive and holds" in await refused(client.unregister_broker(leader))
    assert "broker 3 is cordoned" in await refused(client.add_voter(3))
    assert "there are only 3 brokers" in await refused(client.create_stream("wide", replication_factor=4))


async def test_what_cannot_be_right_is_refused_before_it_is_sent(client: tidelog.Client) -> None:
    with pytest.raises(InvalidRequest, match="-1 is not a broker id"):
        await client.cordon(-1)
    with pytest.raises(InvalidRequest, match="-2 is not a partition"):
        await client.reassign({("orders", -2): [1]})
    with pytest.raises(InvalidRequest, match="no partition was given"):
        await client.reassign({})
    with pytest.raises(InvalidRequest, match="moves_max is 0"):
        await client.spread(moves_max=0)
