"""A replica that left and came again is another one, however its broker and its leader hear of it (R16)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog_broker.core.metadata.commands import ReplicaName, Suspect
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.hosting.hosted_partitions import placed_on
from tidelog_broker.storage.directory.opening import LogOpener, Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.folder.identity import read_assignment

KEY = (STREAM, 0)


def streams_of(cluster: Cluster, number: int) -> Path:
    return cluster[number].folder / "streams"


def folder_of(cluster: Cluster, number: int) -> Path:
    return next(streams_of(cluster, number).glob("orders~*")) / "0"


def left(cluster: Cluster, number: int) -> list[Path]:
    return list(streams_of(cluster, number).glob(".deleted-*"))


def broken(store: LogStore, want: Wanted) -> None:
    raise OSError("the power went")


async def with_ten_records(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.create()
    # What is set aside stays, so that a test can look for it.
    for node in cluster.nodes.values():
        maintenance = node.broker._maintenance
        maintenance._limits = maintenance._limits._replace(deleted_delay=3600.0)
    for number in range(10):
        await appended(cluster[1].append(b"%d" % number * 300))
    await cluster.become_equal()


async def test_a_leader_takes_a_replica_that_left_and_came_at_once_for_empty(
    cluster: Cluster,
) -> None:
    await with_ten_records(cluster)
    controller = cluster.controller
    controller.hold(1)
    controller.change(replicas=(1, 2), isr=(1, 2))
    await until(lambda: KEY not in cluster[3].broker.partitions, "it left")
    controller.hold(3)
    controller.change(replicas=(1, 2, 3))
    controller.release(1)

    leader, assigned = cluster[1].partition(), controller.placed().assignments
    await until(lambda: leader.replica.placed.assignments == assigned, "the leader knows")
    role = leader.replica.role
    assert isinstance(role, LeaderPartition)
    assert (role.followers[3].matching, role.followers[3].durable) == (False, 0)
    await appended(cluster[1].append(b"more"))
    assert controller.placed().isr == (1, 2), "nobody has heard of the new replica"

    controller.release(3)
    await until(lambda: controller.placed().isr == (1, 2, 3), "it has everything")
    assert cluster[3].partition().log.end_offset == 11
    await cluster.become_equal()


async def test_a_follower_that_sees_itself_leave_and_come_at_once_begins_with_an_empty_log(
    cluster: Cluster,
) -> None:
    await with_ten_records(cluster)
    controller, before = cluster.controller, cluster[3].partition()
    controller.hold(3)
    controller.change(replicas=(1, 2), isr=(1, 2))
    role = cluster[1].partition().replica.role
    assert isinstance(role, LeaderPartition)
    await until(lambda: 3 not in role.followers, "the leader knows")
    controller.change(replicas=(1, 2, 3))
    await until(lambda: 3 in role.followers, "the leader knows")
    # The replica of before still asks, and does not count.
    await appended(cluster[1].append(b"more"))
    assert controller.placed().isr == (1, 2)

    controller.release(3)

    await until(lambda: controller.placed().isr == (1, 2, 3), "the new one has everything")
    assert cluster[3].partition() is not before
    assigned = controller.placed().assignment_of(3)
    assert read_assignment(OsFiles(), str(folder_of(cluster, 3))) == assigned > 0
    assert len(left(cluster, 3)) == 1
    await cluster.become_equal()


async def test_a_log_that_was_set_aside_is_replaced_when_both_images_come_at_once(cluster: Cluster) -> None:
    await with_ten_records(cluster)
    controller = cluster.controller
    cluster[3].broker._follower.set_aside(cluster[3].partition(), "it contradicts its leader's")
    await until(lambda: cluster[3].lost, "it is reported")
    controller.hold(3)
    controller.change(replicas=(1, 2), isr=(1, 2))
    controller.change(replicas=(1, 2, 3))

    controller.release(3)

    await until(lambda: controller.placed().isr == (1, 2, 3), "another one in its place")
    assert not cluster[3].broker.lost
    assert list(folder_of(cluster, 3).parent.glob(".quarantine-0"))


async def test_a_replica_that_was_reassigned_during_downtime_begins_empty(
    cluster: Cluster,
) -> None:
    await with_ten_records(cluster)
    await cluster[3].stop()
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    cluster.controller.change(replicas=(1, 2, 3))
    assigned = cluster.controller.placed().assignment_of(3)

    await cluster[3].start()

    assert (cluster[3].suspects, cluster[3].lost_replicas) == ((), ())
    assert not cluster[3].broker._hosted.strays
    assert cluster[3].partition().log.assignment == assigned > 0
    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it has everything")
    await cluster.become_equal()


async def test_a_start_that_ended_between_setting_aside_and_making_is_gone_on_with(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_ten_records(cluster)
    await cluster[3].stop()
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    cluster.controller.change(replicas=(1, 2, 3))
    (want,) = placed_on(3, cluster.controller.image.streams[STREAM])
    with monkeypatch.context() as patch:
        patch.setattr(LogOpener, "create", broken)
        with pytest.raises(OSError, match="the power went"):
            LogStore(OsFiles(), str(cluster[3].folder)).opener.open_all([want], same_boot=True)
    assert len(left(cluster, 3)) == 1
    assert not folder_of(cluster, 3).exists()

    await cluster[3].start()

    assert cluster[3].lost_replicas == ()
    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it has everything")
    await cluster.become_equal()


async def test_a_directory_from_before_a_replica_joined_is_told_of_as_lost(cluster: Cluster) -> None:
    """Somebody put an older copy of the directory back (the replica of now joined the ISR since)."""
    await with_ten_records(cluster)
    await cluster[3].stop()
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    cluster.controller.change(replicas=(1, 2, 3), isr=(1, 2, 3))
    assigned = cluster.controller.placed().assignment_of(3)

    await cluster[3].start()

    assert assigned > 0
    assert cluster[3].lost_replicas == (ReplicaName(STREAM, 0, assignment=assigned),)


async def test_what_is_suspect_is_told_with_its_assignment(cluster: Cluster) -> None:
    await with_ten_records(cluster)
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    await until(lambda: KEY not in cluster[3].broker.partitions, "it left")
    cluster.controller.change(replicas=(1, 2, 3))
    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "it is back")
    assignment = cluster[3].partition().log.assignment
    cluster[3].partition().log.mark_suspect("somebody doubts it")
    await cluster[3].stop()

    await cluster[3].start()

    assert assignment > 0
    assert cluster[3].suspects == (Suspect(STREAM, 0, 1, 10, assignment=assignment),)


async def test_a_folder_that_earlier_software_wrote_is_opened(cluster: Cluster) -> None:
    """Its identity says nothing of an assignment, and the image's is 0."""
    await with_ten_records(cluster)
    await cluster[3].stop()
    assert os.path.getsize(folder_of(cluster, 3) / "identity") == 28

    await cluster[3].start()

    assert cluster[3].partition().log.assignment == 0
    await cluster.become_equal()
