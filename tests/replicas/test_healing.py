"""Rot is found by itself and put right with what another replica has; meanwhile nobody is served it (2c)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from replicas.conftest import STREAM, Cluster, appended
from support.waiting import until
from tidelog.errors import DataCorrupt
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.upkeep import healer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healer, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(healer, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(healer, "HAND_OVER_SECONDS", 0.1)


async def filled(cluster: Cluster, *, segment_bytes: int = 1 << 20) -> None:
    await cluster.start()
    await cluster.create(segment_bytes=segment_bytes)
    told = [cluster[1].append(b"%d" % number * 150, b"x" * 200) for number in range(12)]
    await asyncio.gather(*(appended(one) for one in told))
    await cluster.become_equal()
    for node in cluster.nodes.values():
        checkpoints = node.broker._store.checkpoints
        await until(
            lambda checkpoints=checkpoints: checkpoints.recovery_point((STREAM, 0)) is not None,  # type: ignore[misc]
            "a checkpoint",
        )


def segments(cluster: Cluster, number: int) -> list[Path]:
    return sorted((cluster[number].folder / "streams").glob("orders~*/0/*.log"))


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 4]))


def metric(cluster: Cluster, number: int, name: str) -> float:
    return cluster[number].broker.metrics.registry.get_sample_value(name) or 0.0


@pytest.mark.parametrize("broker", [1, 3])
async def test_a_flipped_byte_in_a_cold_segment_is_found_and_healed_and_counted(
    cluster: Cluster, broker: int
) -> None:
    cluster.scrub_rate = 64 << 20
    await filled(cluster, segment_bytes=4000)
    one = cluster[broker].partition().log
    assert len(one.segments) >= 2
    path = segments(cluster, broker)[0]
    whole = path.read_bytes()

    flip(path, 1000)

    await until(lambda: metric(cluster, broker, "tidelog_healed_ranges_total") == 1, "it is healed")
    assert path.read_bytes() == whole
    assert not one.damaged
    assert metric(cluster, broker, "tidelog_scrub_bytes_total") > 0
    await cluster.become_equal()
    await appended(cluster[1].append(b"more"))
    await cluster.become_equal()


async def test_what_is_damaged_is_refused_and_the_rest_is_served_until_it_is_healed(cluster: Cluster) -> None:
    await filled(cluster)
    for other in (2, 3):
        await cluster[other].stop()
    leader = cluster[1].partition().log
    flip(segments(cluster, 1)[0], 1000)

    with pytest.raises(DataCorrupt) as refused:
        leader.reader.read(2, 1, 24)
    assert (refused.value.details["damaged_start"], refused.value.details["damaged_end"]) == ("2", "4")
    assert leader.reader.read(4, 1, 24) is not None

    await cluster.start(2, 3)
    await until(lambda: not leader.damaged, "a member of the ISR had it")
    assert leader.reader.read(2, 1, 24) is not None
    await cluster.become_equal()


async def test_a_broker_that_restarts_remembers_what_is_damaged_and_heals_it(cluster: Cluster) -> None:
    await filled(cluster)
    cut = cluster[3]
    cut.cut.update((1, 2))
    await cut.stop()
    flip(segments(cluster, 3)[0], 1000)
    await cut.start()
    with pytest.raises(DataCorrupt):
        cut.partition().log.reader.read(2, 1, 24)
    await cut.stop()

    await cut.start()
    assert cut.partition().log.damaged == [(2, 4)]
    await cut.stop()
    cut.cut.clear()
    await cut.start()

    await until(lambda: not cut.partition().log.damaged, "it is healed")
    await cluster.become_equal()


async def test_rot_behind_the_recovery_point_is_no_torn_tail_and_is_healed(
    cluster: Cluster,
) -> None:
    await filled(cluster)
    await cluster[3].kill()
    # As if nothing was known to be on disk: all of it is looked at, and the kernel has not been booted.
    (cluster[3].folder / "checkpoints" / "recovery-points").unlink(missing_ok=True)
    flip(segments(cluster, 3)[0], 1000)

    await cluster[3].start()

    one = cluster[3].partition().log
    assert one.end_offset == 24
    assert one.cut_bytes == 0
    await until(lambda: metric(cluster, 3, "tidelog_healed_ranges_total") == 1, "it is healed")
    assert not one.damaged
    await cluster.become_equal()


async def test_a_damaged_leader_waits_for_another_leader_and_is_healed_as_a_follower(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healer, "HAND_OVER_SECONDS", 60.0)
    await filled(cluster)
    leader = cluster[1].partition().log
    flip(segments(cluster, 1)[0], 1000)
    cluster[1].broker._store.cache._batches.clear()
    with pytest.raises(DataCorrupt):
        leader.reader.read(2, 1, 24)

    assert cluster[1].broker.damaged_replicas() == (ReplicaName(STREAM, 0),)
    assert cluster[2].broker.damaged_replicas() == ()
    await until(lambda: bool(cluster[1].broker._upkeep._healer._leading_since), "the healer has seen it")  # type: ignore[union-attr]
    assert leader.damaged
    cluster.controller.change(leader=2)

    await until(lambda: not leader.damaged, "the new leader had it")
    assert cluster[1].broker.damaged_replicas() == ()
    await cluster.become_equal()


async def test_a_damaged_leader_feeds_a_new_replica_once_it_is_healed(cluster: Cluster) -> None:
    await filled(cluster)
    cluster.controller.change(replicas=(1, 2), isr=(1, 2))
    await until(lambda: (STREAM, 0) not in cluster[3].broker.partitions, "it leaves")
    flip(segments(cluster, 1)[0], 1000)
    cluster[1].broker._store.cache._batches.clear()

    cluster.controller.change(replicas=(1, 2, 3))

    await until(lambda: cluster.controller.placed().isr == (1, 2, 3), "the new one is fed")
    await cluster.become_equal()


async def test_two_damaged_copies_are_healed_from_the_third(cluster: Cluster) -> None:
    cluster.scrub_rate = 64 << 20
    await filled(cluster)
    for broker in (1, 2):
        flip(segments(cluster, broker)[0], 1000)

    await until(
        lambda: all(metric(cluster, broker, "tidelog_healed_ranges_total") == 1 for broker in (1, 2)),
        "both are healed",
    )
    await cluster.become_equal()


async def test_who_lost_a_whole_folder_or_all_of_its_disk_is_filled_again(cluster: Cluster) -> None:
    await filled(cluster)
    for lost in ("partition", "disk"):
        await cluster[3].kill()
        gone = segments(cluster, 3)[0].parent if lost == "partition" else cluster[3].folder
        remove_tree(gone, keep=lost == "disk")
        await cluster[3].start()
        if lost == "partition":
            assert [name.stream_id for name in cluster[3].lost_replicas] == [STREAM]
        # What the controller makes of the registration (R6).
        cluster.controller.change(isr=(1, 2))
        await until(lambda: cluster.controller.placed().isr == (1, 2, 3), f"it is back without its {lost}")
        await cluster.become_equal()


def remove_tree(folder: Path, *, keep: bool) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if not keep:
        folder.rmdir()
