"""One connection for all partitions of a pair, another for those far behind, and bounds on both."""

from __future__ import annotations

import asyncio

import pytest

from replicas.conftest import Cluster, appended
from support.hosts import HOST
from support.waiting import until
from tidelog_broker.peers.connection import WRITE_BUFFER_BYTES
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.replication.feed import ANSWER_BYTES_MAX, Pace
from tidelog_broker.writing.append_requests import Acks

MIB = 1 << 20


async def test_hundreds_of_partitions_share_one_connection(cluster: Cluster) -> None:
    count = 300
    await cluster.start(1, 2)
    await cluster.create(partitions=count, replicas=(1, 2))

    told = await asyncio.gather(
        *(appended(cluster[1].append(b"%d" % number, number=number)) for number in range(count))
    )

    assert {one.base_offset for one in told} == {0}
    assert list(cluster[2].links.uplinks) == [(1, ConnectionKind.REPLICA)]
    assert list(cluster[1].links.feeds) == [(2, ConnectionKind.REPLICA)]
    assert all(cluster[2].partition(number).log.end_offset == 1 for number in range(count))


async def test_when_nothing_happens_nothing_runs(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create(partitions=5)
    cluster.controller.proposals.clear()
    await asyncio.gather(*(appended(cluster[1].append(b"x", number=number)) for number in range(5)))

    for node in cluster.nodes.values():
        host = node.broker._host
        await until(lambda host=host: host.ticking == 0 and host._ticker is None, "no timer")  # type: ignore[misc]
    assert cluster.controller.proposals == []


async def test_a_follower_that_does_not_read_costs_the_leader_a_bounded_buffer(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create(partitions=4, replicas=(1, 2))
    await asyncio.gather(*(appended(cluster[1].append(b"x", number=number)) for number in range(4)))
    uplink, feed = (
        cluster[2].links.uplinks[1, ConnectionKind.REPLICA],
        cluster[1].links.feeds[2, ConnectionKind.REPLICA],
    )
    assert uplink.connection is not None
    assert feed.connection is not None
    uplink.connection.pause_reading()
    transport = feed.connection._transport
    assert transport is not None

    largest = 0
    for _ in range(10):
        told = [cluster[1].append(bytes(900_000), number=n, acks=Acks.LEADER) for n in range(4)]
        await asyncio.gather(*(appended(one) for one in told))
        largest = max(largest, transport.get_write_buffer_size())

    assert largest <= WRITE_BUFFER_BYTES + 2 * ANSWER_BYTES_MAX
    uplink.connection.resume_reading()
    await until(lambda: all(cluster[2].partition(n).log.end_offset == 11 for n in range(4)), "all of it", 20)


async def test_who_is_far_behind_is_fed_over_the_other_connection_and_comes_back(cluster: Cluster) -> None:
    cluster.catch_up_rate = 8 * MIB
    await cluster.start()
    await cluster.create()
    cluster[1].links._catch_up_min, cluster[1].links._catch_up_done = MIB, MIB // 4
    await cluster[3].stop()
    cluster[1].links.refused(3)
    await until(lambda: cluster.controller.placed().isr == (1, 2), "it leaves the ISR")
    for _ in range(6):
        await appended(cluster[1].append(bytes(900_000)))
    began = asyncio.get_running_loop().time()

    await cluster[3].start()
    await until(lambda: (3, ConnectionKind.CATCH_UP) in cluster[1].links.feeds, "the other connection")
    await appended(cluster[1].append(b"meanwhile"))
    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it joins", 20)

    assert asyncio.get_running_loop().time() - began > 0.3
    await until(
        lambda: (3, ConnectionKind.CATCH_UP) not in cluster[1].links.feeds, "the other connection ends"
    )
    await cluster.become_equal()


async def test_a_connection_that_breaks_is_made_anew_and_nothing_is_lost(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    told = []
    for number in range(30):
        told.append(cluster[1].append(b"%d" % number * 100))
        feed = cluster[1].links.feeds.get((2 + number % 2, ConnectionKind.REPLICA))
        if number % 5 == 0 and feed is not None and feed.connection is not None:
            feed.connection.abort("the test breaks it")
        await asyncio.sleep(0.002)

    places = await asyncio.gather(*(appended(one) for one in told))

    assert [place.base_offset for place in places] == list(range(30))
    await cluster.become_equal()


async def test_the_newest_connection_of_a_broker_counts(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await cluster.create(replicas=(1, 2))
    await appended(cluster[1].append(b"x"))
    old, uplink = (
        cluster[1].links.feeds[2, ConnectionKind.REPLICA],
        cluster[2].links.uplinks[1, ConnectionKind.REPLICA],
    )

    other = await dial(
        HOST, cluster[1].port, cluster[2].identity, ConnectionKind.REPLICA, target=1, timeout_s=5
    )
    other.serve(uplink)
    await until(
        lambda: cluster[1].links.feeds.get((2, ConnectionKind.REPLICA)) is not old, "the new one counts"
    )
    await until(lambda: old.connection is None, "the old one ends")
    await other.end("the test is over")
    await appended(cluster[1].append(b"y"))


async def test_a_leader_whose_machine_refuses_connections_is_known_to_be_gone(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"x"))

    await cluster[1].kill()

    await until(lambda: cluster[2].known_evidence.get(1) is Evidence.REFUSED, "the evidence")


def test_a_pace_lets_through_so_many_bytes_a_second() -> None:
    pace = Pace(lambda: 1000, now=5.0)
    assert pace.pause(5.0) == 0
    pace.took(500, 5.0)
    assert pace.pause(5.0) == pytest.approx(0.5)
    pace.took(500, 5.2)
    assert pace.pause(5.2) == pytest.approx(0.8)
    assert pace.pause(7.0) == 0


def test_what_is_owed_is_worth_less_time_at_another_pace() -> None:
    rates = [1000]
    pace = Pace(lambda: rates[-1], now=5.0)
    pace.took(1000, 5.0)

    pace.settle(5.5)
    rates.append(5000)

    assert pace.pause(5.5) == pytest.approx(0.1)
    assert pace.pause(5.6) == pytest.approx(0)
