"""M5: what is deleted goes for good only when the newest image says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from replicas.conftest import STREAM, Cluster, Node, appended
from support.waiting import until
from tidelog.errors import TimedOut, Unavailable
from tidelog_broker.core.metadata.image import ClusterImage


def set_aside(node: Node) -> list[Path]:
    return list((node.folder / "streams").glob(".deleted-*"))


async def test_files_of_a_deleted_stream_stay_until_the_controller_confirms_the_deletion(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"x"))
    cluster.controller.unreachable = True

    cluster.controller.publish(streams=cluster.controller.image.streams.remove(STREAM))
    for node in cluster.nodes.values():
        await until(lambda node=node: bool(set_aside(node)), "its folder is set aside")  # type: ignore[misc]
    # … and known to be.
    await cluster[1].broker.applied(cluster.controller.image.version)
    with pytest.raises(Unavailable):
        await cluster[1].broker._maintenance.remove_deleted()
    assert len(set_aside(cluster[1])) == 1

    cluster.controller.unreachable = False
    for node in cluster.nodes.values():
        await until(lambda node=node: not set_aside(node), "its files are gone")  # type: ignore[misc]


async def test_files_are_kept_of_a_stream_that_is_there_again(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    await appended(cluster[1].append(b"x"))
    cluster.controller.unreachable = True
    image = cluster.controller.image
    cluster.controller.publish(streams=image.streams.remove(STREAM))
    await until(lambda: bool(set_aside(cluster[1])), "its folder is set aside")

    cluster.controller.publish(streams=image.streams)
    cluster.controller.unreachable = False
    await until(lambda: (STREAM, 0) in cluster[1].broker.partitions, "it is made again")
    await cluster[1].broker._maintenance.remove_deleted()

    assert len(set_aside(cluster[1])) == 1


async def test_deadlines_are_kept_while_nobody_confirms_a_deletion(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never() -> ClusterImage:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(cluster.controller, "newest", never)
    await cluster.start()
    await cluster.create(replicas=[1])
    cluster.controller.publish(streams=cluster.controller.image.streams.remove(STREAM))
    await asyncio.wait_for(asked.wait(), 10)
    cluster.controller.unreachable = True
    await cluster.create()
    for other in (2, 3):
        await cluster[other].stop()

    broker = cluster[1].broker
    monkeypatch.setattr(broker, "deadline", lambda timeout_ms: asyncio.get_running_loop().time() + 0.1)
    outcome = await asyncio.wait_for(cluster[1].append(b"late"), 5)

    assert isinstance(outcome, TimedOut)
