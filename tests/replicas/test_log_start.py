"""Records deleted up to the middle of a batch strand nobody (R11)."""

from __future__ import annotations

import os
from pathlib import Path

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until


async def with_a_start_inside_a_batch(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create(segment_bytes=1 << 20)
    for number in range(6):
        await appended(cluster[1].append(*(b"%d" % number * 400 for _ in range(10))))
    await cluster.become_equal()
    assert await cluster[1].broker.delete_records(cluster[1].partition(), 33) == 33


async def test_a_new_replica_begins_with_the_batch_that_holds_the_log_start(cluster: Cluster) -> None:
    await with_a_start_inside_a_batch(cluster)
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    await until(lambda: (STREAM, 0) not in cluster[3].broker.partitions, "it leaves")

    cluster.controller.change(replicas=(1, 2, 3))

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it joins")
    await appended(cluster[1].append(b"more"))
    await cluster.become_equal()
    assert [node.partition().log.start_offset for node in cluster.nodes.values()] == [33, 33, 33]
    await cluster[3].kill()
    await cluster[3].start()
    await cluster.become_equal()
    assert cluster[3].partition().log.start_offset == 33


async def test_a_replica_that_lost_its_log_begins_there_too_and_can_lead(cluster: Cluster) -> None:
    await with_a_start_inside_a_batch(cluster)
    await cluster[3].stop()
    folder: Path = next((cluster[3].folder / "streams").glob("orders~*")) / "0"
    os.remove(folder / "leader-epochs")
    await cluster[3].start()
    cluster.controller.change(isr=(1, 2))

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it is full again")
    await cluster.become_equal()
    cluster.controller.change(leader=3)
    await until(lambda: cluster[3].partition().leads, "it leads")
    await appended(cluster[3].append(b"more"))

    await cluster.become_equal()
    assert [node.partition().log.start_offset for node in cluster.nodes.values()] == [33, 33, 33]


async def test_a_follower_that_was_away_while_more_was_deleted_than_it_had(cluster: Cluster) -> None:
    await with_a_start_inside_a_batch(cluster)
    await cluster[3].kill()
    cluster.controller.change(isr=(1, 2))
    await until(lambda: cluster[1].partition().isr_size == 2, "the image")
    for number in range(6):
        await appended(cluster[1].append(*(b"%d" % number * 400 for _ in range(10))))
    await cluster[1].broker.delete_records(cluster[1].partition(), 95)

    await cluster[3].start()

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it joins")
    await cluster.become_equal()
    assert cluster[3].partition().log.start_offset == 95
