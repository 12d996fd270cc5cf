"""R18: a broker that nobody told the cluster's clock dates nothing, so it does not lead yet."""

from __future__ import annotations

import pytest

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until

HOUR_US = 3_600_000_000


@pytest.fixture
async def waiting(cluster: Cluster) -> Cluster:
    """Broker 1 would lead if it knew the time."""
    cluster.controller.knows_the_time = False
    await cluster.start()
    cluster.controller.create()
    there = [node.broker.partitions for node in cluster.nodes.values()]
    await until(lambda: all((STREAM, 0) in one for one in there), "replicas")
    one = cluster[1].partition()
    await until(lambda: one.replica in cluster[1].broker._host._awaiting_time, "its turn to lead")
    assert not one.leads
    return cluster


def tell_the_time(cluster: Cluster, broker: int, off_us: int = 0) -> None:
    clock = cluster[broker].broker.clock
    clock.heard(clock.wall() - off_us, clock.elapsed())


async def test_r18_a_replica_leads_once_the_clusters_clock_is_known(waiting: Cluster) -> None:
    assert waiting[2].partition().replica.role is not None, "to follow it needs no clock"

    tell_the_time(waiting, 1, HOUR_US)
    await until(lambda: waiting[1].partition().leads, "a leader")

    clock = waiting[1].broker.clock
    at = await appended(waiting[1].append(b"first"))
    assert at.append_time_us <= clock.wall() - HOUR_US + clock.skew_us_max, "by the cluster's clock"


async def test_r18_a_replica_that_waits_for_the_clock_may_follow_another_leader(waiting: Cluster) -> None:
    waiting.controller.change(leader=2, leader_epoch=2)
    await until(lambda: waiting[1].partition().replica.role is not None, "it follows")

    tell_the_time(waiting, 1)
    tell_the_time(waiting, 2)
    await until(lambda: waiting[2].partition().leads, "the other one leads")
    await appended(waiting[2].append(b"first"))
    await waiting.become_equal()
    await until(lambda: not waiting[1].broker._host._awaiting_time, "it has looked at the clock")
    assert not waiting[1].partition().leads
