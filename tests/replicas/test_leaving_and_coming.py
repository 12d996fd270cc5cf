"""Replicas come and go as the image says, and a log that cannot be trusted is set aside."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog.model import Durability
from tidelog_broker.writing.append_requests import Acks

KEY = (STREAM, 0)


def folder_of(cluster: Cluster, number: int) -> Path:
    return next((cluster[number].folder / "streams").glob("orders~*"))


async def test_a_replica_that_the_image_takes_away_goes_and_one_that_it_gives_comes(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"x"))
    before = cluster[3].partition().replica.role_number
    # What is set aside stays until the test has seen it.
    maintenance = cluster[3].broker._maintenance
    maintenance._limits = maintenance._limits._replace(deleted_delay=3600.0)

    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    await until(lambda: list((cluster[3].folder / "streams").glob(".deleted-*")), "its folder is set aside")
    assert KEY not in cluster[3].broker.partitions
    await appended(cluster[1].append(b"y"))

    cluster.controller.change(replicas=(1, 2, 3))
    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it is back")
    await cluster.become_equal()
    # Over the same connection: an answer for the role that it had before is not for this one (R2).
    assert cluster[3].partition().replica.role_number > before


async def test_a_follower_with_a_torn_tail_fetches_what_it_lost(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create(durability=Durability.PAGE_CACHE)
    for number in range(10):
        await appended(cluster[1].append(b"%d" % number * 300))
    await cluster.become_equal()
    await cluster[3].kill()
    path = next(folder_of(cluster, 3).glob("0/*.log"))
    os.truncate(path, path.stat().st_size - 1000)

    await cluster[3].start()

    await cluster.become_equal()
    assert cluster[3].partition().log.cut_bytes > 0


async def test_a_lost_log_is_replaced_by_an_empty_one_once_nobody_counts_on_it(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await asyncio.gather(*(appended(cluster[1].append(b"%d" % number * 300)) for number in range(10)))
    await cluster.become_equal()
    cluster.controller.unreachable = True  # It stays in the ISR, where others count on it.
    await cluster[3].stop()
    os.remove(folder_of(cluster, 3) / "0" / "leader-epochs")

    await cluster[3].start()
    cluster.controller.publish()  # Behind everything that the start itself brought.
    await cluster[3].broker.applied(cluster.controller.image.version)
    assert KEY in cluster[3].broker.lost

    cluster.controller.unreachable = False
    cluster.controller.change(isr=(1, 2))
    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "a new replica joins")
    await cluster.become_equal()
    assert list(folder_of(cluster, 3).glob(".quarantine-0*"))


async def test_a_log_that_contradicts_what_was_committed_is_set_aside_and_reported(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    for number in range(5):
        await appended(cluster[1].append(b"%d" % number))
    await cluster.become_equal()
    for number in (1, 2):
        await cluster[number].stop()
    # Somebody elects a broker whose disk was put back to an older state.
    cluster.controller.change(leader=3, isr=(3,))
    await until(lambda: cluster[3].partition().leads, "the leader")
    cluster[3].partition().log.cutter.truncate(2, lambda point: None)

    await cluster[2].start()

    await until(lambda: cluster[2].lost, "it is reported")
    stream, partition, reason = cluster[2].lost[0]
    assert (stream, partition) == KEY
    assert "high watermark" in reason
    assert list(folder_of(cluster, 2).glob(".quarantine-0*"))
    cluster.controller.change(isr=(3,))
    await cluster[2].broker.applied(cluster.controller.image.version)
    assert KEY in cluster[2].broker.lost

    for number in range(4):
        await appended(cluster[3].append(b"%d" % number, acks=Acks.LEADER))
    # By command: it is taken away, and given again.
    cluster.controller.change(replicas=(1, 3))
    cluster.controller.change(replicas=(1, 2, 3))
    await until(lambda: 2 in cluster.controller.placed().isr, "another one in its place")
    assert KEY not in cluster[2].broker.lost
    assert list(folder_of(cluster, 2).glob(".quarantine-0*"))
