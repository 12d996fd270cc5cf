"""A broker alone is the only voter of its cluster; what it wrote before there were quorums still counts."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from quorum.conftest import Broker, Cluster, create, identifier
from simulator.disk import FakeDisk
from tidelog.model import StreamSettings
from tidelog_broker.core.metadata.commands import FEATURE_LEVEL

OLD_DIRECTORY = Path(__file__).with_name("solo_directory.json")
"""Of commit 3f1384b, after three runs, the last of which was killed: snapshots, hard state, entries."""


def old_disk() -> FakeDisk:
    disk = FakeDisk()
    for path, data in json.loads(OLD_DIRECTORY.read_text()).items():
        disk.make_dir(path.rsplit("/", 1)[0])
        disk.open(path, create=True).pwrite([base64.b64decode(data)], 0)
    return disk


@pytest.fixture
async def old(cluster: Cluster) -> Broker:
    broker = cluster.add()
    broker.disk, broker.directory_id = old_disk(), identifier(1)
    return broker


async def test_a_directory_from_before_there_were_quorums_opens_as_a_cluster_of_one_voter(
    old: Broker,
) -> None:
    controller = await old.start()

    image = controller.image
    assert controller.voters == (0,)
    assert set(image.names) == {f"s{run}-{number}" for run in range(3) for number in range(4)}
    assert image.brokers[0].solo_epoch == 0
    assert image.brokers[0].starts == 4


async def test_its_feature_level_rises_once_its_broker_has_said_what_it_understands(
    old: Broker, cluster: Cluster
) -> None:
    controller = await old.launch()
    await cluster.eventually(lambda: controller.image.version > 0)
    assert controller.image.feature_level == 1
    await old.join()

    await cluster.eventually(lambda: controller.image.feature_level == FEATURE_LEVEL)


async def test_its_partitions_get_epochs_that_no_earlier_run_had(old: Broker) -> None:
    controller = await old.start()

    partitions = [part for stream in controller.image.streams.values() for part in stream.partitions]
    assert {part.leader for part in partitions} == {0}
    assert min(part.leader_epoch for part in partitions) > 3


async def test_its_producer_ids_are_not_given_out_again(old: Broker) -> None:
    controller = await old.start()

    assert await controller.allocate_producer_id() > 3000


async def test_it_grows_to_a_quorum_with_brokers_that_join(old: Broker, cluster: Cluster) -> None:
    await old.start()
    await cluster.grow(2)

    await cluster.eventually(lambda: all(one.controller.voters == (0, 1, 2) for one in cluster.running))
    assert len(cluster.brokers[2].controller.image.names) == 12


async def test_every_run_leads_in_an_epoch_of_its_own(cluster: Cluster) -> None:
    broker = cluster.add()
    controller = await broker.start()
    await controller.change(create("orders"))
    epochs = []
    for _ in range(3):
        await broker.kill()
        controller = await broker.start()
        stream = controller.image.stream_named("orders")
        assert stream is not None
        assert stream.partitions[0].leader == 0
        epochs.append(stream.partitions[0].leader_epoch)

    assert epochs == sorted(set(epochs))


async def test_a_loop_that_stalls_costs_nobody_the_leadership(cluster: Cluster) -> None:
    await cluster.quorum(3)
    term = cluster.brokers[0].controller.active

    time.sleep(1.5)  # noqa: ASYNC251 (every broker of this loop is away as long)
    # A majority still answers it: nobody took the leadership.
    await cluster.brokers[0].controller.confirm()

    assert cluster.brokers[0].controller.active is term


async def test_a_report_replaces_the_leaders_of_a_killed_broker_before_its_session_ends(
    cluster: Cluster,
) -> None:
    await cluster.quorum(3)
    await cluster.brokers[0].controller.change(
        create("orders", StreamSettings(partitions=6, replication_factor=3))
    )
    await cluster.eventually(lambda: all("orders" in one.controller.image.names for one in cluster.running))
    controller = cluster.brokers[0].controller

    def led_by_the_killed() -> int:
        stream = controller.image.stream_named("orders")
        assert stream is not None
        return sum(part.leader == 2 for part in stream.partitions)

    assert led_by_the_killed() == 2
    await cluster.brokers[2].kill()
    gap = await cluster.eventually(lambda: led_by_the_killed() == 0)

    assert gap < 1.5
    assert not controller.image.brokers[2].fenced
