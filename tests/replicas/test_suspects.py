"""A replica that may lack what it acknowledged says so when its broker registers (R6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog.model import Durability
from tidelog_broker.core.metadata.commands import ReplicaName, Suspect


def folder_of(cluster: Cluster, number: int) -> Path:
    return next((cluster[number].folder / "streams").glob("orders~*")) / "0"


async def filled(cluster: Cluster, durability: Durability, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
    await cluster.start()
    await cluster.create(durability=durability, replicas=replicas)
    for number in range(4):
        await appended(cluster[replicas[0]].append(b"%d" % number * 300))
    if len(replicas) == 3:
        await cluster.become_equal()


async def test_a_page_cache_replica_is_suspect_until_the_image_shows_its_run(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(cluster, Durability.PAGE_CACHE)
    await cluster[3].kill()
    mark, marked = folder_of(cluster, 3) / "suspect", []
    register = cluster.controller.register

    def registering(broker: int, incarnation: bytes) -> None:
        marked.append(mark.exists())
        register(broker, incarnation)

    monkeypatch.setattr(cluster.controller, "register", registering)
    await cluster[3].start(same_boot=False)

    assert cluster[3].suspects == (Suspect(STREAM, 0, leader_epoch=1, log_end_offset=4),)
    assert marked == [True]
    await until(lambda: not cluster[3].partition().log.suspect, "it is told of")
    assert not mark.exists()
    await cluster.become_equal()


async def test_a_mark_that_nobody_was_told_of_stays_for_the_next_start(cluster: Cluster) -> None:
    await filled(cluster, Durability.PAGE_CACHE)
    await cluster[3].kill()
    cluster.controller.register = lambda broker, incarnation: None  # type: ignore[method-assign]
    await cluster[3].start(same_boot=False)
    cluster.controller.publish()  # Behind everything that the start itself brought.
    await cluster[3].broker.applied(cluster.controller.image.version)
    assert (folder_of(cluster, 3) / "suspect").exists()

    await cluster[3].stop()
    await cluster[3].start()

    assert [one.log_end_offset for one in cluster[3].suspects] == [4]


@pytest.mark.parametrize(
    ("durability", "end"),
    [(Durability.FSYNC, "killed"), (Durability.PAGE_CACHE, "stopped"), (Durability.PAGE_CACHE, "same boot")],
)
async def test_who_lacks_nothing_is_not_suspect(cluster: Cluster, durability: Durability, end: str) -> None:
    await filled(cluster, durability)
    await (cluster[3].stop() if end == "stopped" else cluster[3].kill())

    await cluster[3].start(same_boot=end == "same boot")

    assert cluster[3].suspects == ()
    assert not (folder_of(cluster, 3) / "suspect").exists()


async def test_the_only_replica_of_a_partition_tells_what_it_may_lack_too(cluster: Cluster) -> None:
    """The image at a start may be older than the cluster's: the controller knows of others."""
    await filled(cluster, Durability.PAGE_CACHE, replicas=(1,))
    await cluster[1].kill()
    await cluster[1].start(same_boot=False)
    assert cluster[1].suspects == (Suspect(STREAM, 0, leader_epoch=1, log_end_offset=4),)
    await cluster[1].stop()

    os.remove(folder_of(cluster, 1) / "leader-epochs")
    await cluster[1].start()

    assert (STREAM, 0) in cluster[1].broker.lost
    assert cluster[1].lost_replicas == (ReplicaName(STREAM, 0),)


async def test_a_log_without_its_history_is_told_of_as_lost(cluster: Cluster) -> None:
    await filled(cluster, Durability.FSYNC)
    await cluster[3].stop()
    os.remove(folder_of(cluster, 3) / "leader-epochs")

    await cluster[3].start()

    assert cluster[3].lost_replicas == (ReplicaName(STREAM, 0),)
