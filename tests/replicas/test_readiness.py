"""K2: a broker is ready once what it holds leads or has caught up, or cannot, and stays ready then."""

from __future__ import annotations

import asyncio
import os

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog_broker.storage.segments.scan import DamagedRange


def reason(cluster: Cluster, number: int) -> str | None:
    return cluster[number].broker.readiness.reason()


async def ready(cluster: Cluster, number: int) -> None:
    await until(lambda: reason(cluster, number) is None, f"broker {number} is ready")


def behind(count: int, one: str) -> str:
    return f"{count} of the partitions here have not caught up yet, such as {one}"


async def with_records(cluster: Cluster, **wanted: int) -> None:
    await cluster.start()
    await cluster.create(**wanted)
    for number in range(wanted.get("partitions", 1)):
        await appended(cluster[1].append(b"x", number=number))
    await asyncio.gather(*(ready(cluster, one) for one in cluster.nodes))


async def test_a_follower_that_is_behind_is_not_ready_before_it_has_everything(cluster: Cluster) -> None:
    await with_records(cluster)
    await cluster[3].stop()
    cluster[1].links.refused(3)
    await until(lambda: cluster.controller.placed().isr == (1, 2), "it leaves the ISR")
    await asyncio.gather(*(appended(cluster[1].append(b"x" * 500)) for _ in range(20)))

    cluster[3].cut.add(1)
    await cluster[3].start()
    await cluster[3].broker.applied(cluster.controller.image.version)
    assert reason(cluster, 3) == behind(1, "orders/0")
    cluster[3].cut.clear()
    await ready(cluster, 3)

    assert cluster.controller.placed().isr == (1, 2, 3)
    assert cluster[3].partition().log.end_offset == 21


async def test_having_been_in_sync_in_the_run_before_makes_nobody_ready(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.unreachable = True
    await cluster[3].stop()

    cluster[3].cut.add(1)
    await cluster[3].start()
    await cluster[3].broker.applied(cluster.controller.image.version)

    assert cluster.controller.placed().isr == (1, 2, 3)
    assert reason(cluster, 3) == behind(1, "orders/0")
    cluster[3].cut.clear()
    await ready(cluster, 3)


async def test_whoever_has_everything_and_is_not_in_sync_yet_is_not_ready(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.unreachable = True
    await cluster[3].stop()
    cluster.controller.change(isr=(1, 2))

    await cluster[3].start()
    await until(lambda: cluster[3].partition().replica.role is not None, "it follows")
    role = cluster[3].partition().replica.role
    await until(lambda: role.caught_up, "the leader has told it how far it is")  # type: ignore[union-attr]

    assert reason(cluster, 3) == behind(1, "orders/0")
    cluster.controller.unreachable = False
    await ready(cluster, 3)


async def test_once_ready_a_broker_stays_so_until_it_stops(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.unreachable = True

    cluster.controller.change(isr=(1, 2))
    await until(lambda: cluster[3].partition().replica.placed.isr == (1, 2), "the image")
    assert reason(cluster, 3) is None
    await cluster[1].kill()
    cluster[3].broker.session(False)
    assert reason(cluster, 3) is None

    await cluster[3].stop()
    assert reason(cluster, 3) == "stopping"


async def test_what_had_caught_up_once_does_not_hold_up_the_rest(cluster: Cluster) -> None:
    await with_records(cluster, partitions=2)
    cluster.controller.change(1, leader=2)
    await until(lambda: cluster[2].partition(1).leads, "another leads the other partition")
    cluster.controller.unreachable = True
    await cluster[3].stop()

    cluster[3].cut.add(2)
    await cluster[3].start()
    await until(lambda: reason(cluster, 3) == behind(1, "orders/1"), "one of two has caught up")
    cluster.controller.change(0, isr=(1, 2))
    cluster[3].cut.clear()

    await ready(cluster, 3)


async def test_a_partition_without_a_leader_holds_nobody_up(cluster: Cluster) -> None:
    await with_records(cluster, partitions=2)
    await cluster[3].stop()
    cluster[3].cut.update((1, 2))
    for number in range(2):
        cluster.controller.change(number, leader=None)

    await cluster[3].start()

    assert reason(cluster, 3) is None


async def test_a_replica_that_is_being_added_holds_nobody_up(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    await cluster[3].broker.applied(cluster.controller.image.version)
    await cluster[3].stop()
    cluster[3].cut.update((1, 2))
    cluster.controller.change(replicas=(1, 2, 3), adding=(3,))

    await cluster[3].start()
    await cluster[3].broker.applied(cluster.controller.image.version)

    assert (STREAM, 0) in cluster[3].broker.partitions
    assert reason(cluster, 3) is None


async def test_a_log_that_is_lost_holds_nobody_up(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.unreachable = True
    await cluster[3].stop()
    folder = next((cluster[3].folder / "streams").glob("orders~*")) / "0"
    os.remove(folder / "leader-epochs")

    await cluster[3].start()
    cluster.controller.publish()  # Behind everything that the start itself brought.
    await cluster[3].broker.applied(cluster.controller.image.version)

    assert (STREAM, 0) in cluster[3].broker.lost
    assert reason(cluster, 3) is None


async def test_a_damaged_replica_holds_nobody_up(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.unreachable = True
    await cluster[3].stop()
    cluster[3].cut.update((1, 2))

    await cluster[3].start()
    await cluster[3].broker.applied(cluster.controller.image.version)
    assert reason(cluster, 3) == behind(1, "orders/0")
    cluster[3].partition().log._state.damaged = [DamagedRange(0, 1)]

    assert reason(cluster, 3) is None


async def test_having_had_everything_of_another_leader_makes_nobody_ready(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.unreachable = True
    await cluster[3].stop()
    cluster[3].cut.add(2)
    await cluster[3].start()
    await until(lambda: cluster[3].partition().replica.role is not None, "it follows")
    role = cluster[3].partition().replica.role
    await until(lambda: role.caught_up, "it has everything")  # type: ignore[union-attr]

    # Nobody had asked until then.
    cluster.controller.change(leader=2)
    assert reason(cluster, 3) == behind(1, "orders/0")
    cluster[3].cut.clear()

    await ready(cluster, 3)


async def test_a_broker_that_leads_is_ready_when_it_leads_again(cluster: Cluster) -> None:
    await with_records(cluster)
    cluster.controller.unreachable = True
    await cluster[1].stop()

    await cluster[1].start()
    # The run before led, so nobody does (R10).
    cluster.controller.change(leader=1)
    await ready(cluster, 1)

    assert cluster[1].partition().leads
