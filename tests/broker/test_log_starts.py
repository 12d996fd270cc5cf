"""Log start offsets move on the disk first, and what failed once is tried again (R11, DESIGN 4.5)."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import pytest_asyncio

from storage.batches import T0, item, records
from storage.logs import KEY, Bench
from support.waiting import until
from tidelog.model import Retention, StreamConfig
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import StorageFailure
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.upkeep import maintenance
from tidelog_broker.upkeep.maintenance import Maintenance, MaintenanceLimits

FULL = errno.ENOSPC


class Replica:
    """What maintenance sees of a partition whose records are all committed."""

    name, partition, key = "orders", 0, KEY
    leads, removed, dirty_since = True, False, None
    config = StreamConfig(retention=Retention(bytes=1), segment_bytes=4096, batch_bytes_max=4096)

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.replica = self
        self.role_number = 1
        self.moved: list[int] = []
        """Where the log began when the role was told that it moved."""

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    def start_moved(self) -> None:
        self.moved.append(self.log.start_offset)


class Stage:
    """Maintenance of one partition with ten closed segments."""

    def __init__(self) -> None:
        self.bench = Bench(segment_bytes=4096)
        for _ in range(40):
            self.bench.append(item(records(3, 900)))
        self.bench.sync()
        self.bench.checkpoint()
        self.replica = Replica(self.bench.log)
        self.failures: list[BaseException] = []
        self.threads = ThreadPoolExecutor(1)
        self.maintenance = Maintenance(
            self.bench.store,
            {KEY: cast(Any, self.replica)},
            cast(Any, None),
            cast(Any, None),
            self.threads,
            ClusterClock(lambda: T0),
            self.failures.append,
            MaintenanceLimits(1, 1, 1, 1, 1),
            image=ClusterImage,
            newest=cast(Any, None),
        )

    @property
    def log(self) -> PartitionLog:
        return self.bench.log

    @property
    def saved_start(self) -> int:
        return LogStore(self.bench.disk.crash(), "/data").checkpoints.log_start_offset(KEY)

    @property
    def files(self) -> list[str]:
        return [name for name in self.bench.disk.list(self.bench.folder) if name.endswith(".log")]

    async def sweep(self) -> None:
        await self.maintenance.sweep()

    def disk_is_full(self, times: int = 1) -> None:
        """For what is saved of log starts."""
        self.bench.disk.fail("create", FULL, path="checkpoints/", times=times)


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.maintenance.stop()
    made.threads.shutdown()


async def test_retention_that_cannot_be_saved_is_tried_again_at_the_next_sweep(
    stage: Stage,
) -> None:
    whole = stage.files
    stage.disk_is_full()
    with pytest.raises(OSError, match="No space left"):
        await stage.sweep()
    assert (stage.log.start_offset, stage.saved_start, stage.files) == (0, 0, whole)
    assert stage.replica.moved == []

    await stage.sweep()

    start = stage.log.start_offset
    assert start == stage.log.active.base_offset
    assert stage.saved_start == start
    assert stage.replica.moved == [start]
    assert len(stage.files) == 1


async def test_retention_of_a_role_that_ended_meanwhile_is_left_to_the_next_leader(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = stage.maintenance.retention.look

    def deposed(*asked: Any) -> Any:
        stage.replica.role_number += 1
        return look(*asked)

    monkeypatch.setattr(stage.maintenance.retention, "look", deposed)
    await stage.sweep()
    assert (stage.log.start_offset, stage.saved_start, stage.replica.moved) == (0, 0, [])

    monkeypatch.undo()
    await stage.sweep()
    assert stage.log.start_offset == stage.log.active.base_offset


async def test_a_start_that_was_not_saved_is_not_saved_by_the_next_checkpoint(stage: Stage) -> None:
    stage.disk_is_full()
    with pytest.raises(OSError, match="No space left"):
        await stage.maintenance.advance_starts([(cast(Any, stage.replica), 30)])

    stage.bench.checkpoint()

    assert stage.saved_start == 0


async def test_a_start_is_on_the_disk_before_the_log_begins_there(stage: Stage) -> None:
    seen: list[tuple[int, int]] = []
    stage.bench.disk.before = lambda operation: seen.append((stage.log.start_offset, stage.saved_start))

    await stage.maintenance.advance_starts([(cast(Any, stage.replica), 30)])

    stage.bench.disk.before = None
    assert stage.log.start_offset == 30
    assert all(saved >= start for start, saved in seen)
    assert {start for start, _ in seen} == {0, 30}


async def test_what_a_role_asked_for_is_tried_until_it_is_saved(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "START_RETRY_SECONDS", 0.001)
    stage.disk_is_full(times=3)

    stage.maintenance.request_start(cast(Any, stage.replica), 30)

    await until(lambda: stage.replica.moved, "the role is told")
    assert stage.replica.moved == [30]
    assert stage.saved_start == 30
    assert stage.failures == []


async def test_what_a_role_asked_for_that_ended_meanwhile_is_not_done_to_another_roles_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "START_RETRY_SECONDS", 0.05)
    stage.disk_is_full()
    stage.maintenance.request_start(cast(Any, stage.replica), 30)
    (fault,) = stage.bench.disk.faults
    await until(lambda: not fault.times and stage.maintenance._starts, "it waits to be tried again")

    stage.replica.role_number = 2

    await until(lambda: stage.maintenance._moving is None, "nothing is asked for any more")
    assert (stage.log.start_offset, stage.saved_start) == (0, 0)


@pytest.mark.parametrize("leads", [True, False])
async def test_segments_that_could_not_be_unlinked_go_with_a_later_sweep(stage: Stage, leads: bool) -> None:
    """On a follower too, which moves its start only when its leader says so."""
    stage.replica.leads = leads
    third = stage.log.segments[2].path
    stage.bench.disk.fail("remove", errno.EIO, path=third)
    start = stage.log.active.base_offset
    await stage.maintenance.advance_starts([(cast(Any, stage.replica), start)])
    # It has moved; what is left counts as the log's until it is gone.
    assert stage.replica.moved == [start]
    assert stage.log.segments[0].path == third
    assert f"{stage.bench.folder}/{stage.files[0]}" == third

    await stage.sweep()

    assert len(stage.files) == len(stage.log.segments) == 1
    assert stage.replica.moved == [start]
    assert stage.failures == []


async def test_a_segment_that_stays_keeps_no_other_partitions_segments(stage: Stage) -> None:
    other = Stage()
    stage.bench.disk.fail("remove", errno.EIO, path=".log", times=1000)
    starts = [(cast(Any, one.replica), one.log.active.base_offset) for one in (stage, other)]
    other.maintenance._store = stage.maintenance._store

    await stage.maintenance.advance_starts(starts)

    assert len(other.files) == 1
    assert len(stage.files) > 1
    other.threads.shutdown()


async def test_a_flush_that_fails_while_segments_go_ends_the_broker(stage: Stage) -> None:
    """What the guard knows of them is flushed first; after a failed flush nothing goes on (DESIGN 4.3)."""
    for _ in range(10):
        stage.bench.append(item(records(3, 900)))
    stage.bench.disk.fail("datasync", errno.EIO, path=stage.bench.folder, times=1000)

    await stage.maintenance.advance_starts([(cast(Any, stage.replica), stage.log.active.base_offset)])

    assert [type(failure) for failure in stage.failures] == [StorageFailure]
