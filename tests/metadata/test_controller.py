"""The controller of a broker alone: what it answers is on disk, and what it refuses left no trace."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from metadata.samples import CLUSTER, LISTENERS
from simulator.disk import FakeDisk, Operation
from support.quorum_host import RecordingHost
from tidelog.errors import (
    DiskFull,
    ResourceExhausted,
    Stopping,
    StorageFailed,
    StreamExists,
    TidelogError,
    Unavailable,
)
from tidelog.model import StreamSettings
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.quorum.controller import PRODUCER_ID_BLOCK, Controller, Decision
from tidelog_broker.quorum.opening import open_quorum_controller
from tidelog_broker.quorum.options import QuorumOptions
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.storage.directory.data_directory import DataDirectory

DIRECTORY = b"\0" * 15 + b"\1"


class Broker:
    """A controller on a fake disk, started as a broker starts it."""

    def __init__(self, disk: FakeDisk, reserve_bytes: int = 0) -> None:
        self.disk = disk
        self.threads = ThreadPoolExecutor(1)
        self.failures: list[BaseException] = []
        self.directory = DataDirectory.open(
            disk,
            "/data",
            reserve_bytes=reserve_bytes,
            read_boot_id=lambda: "",
            lock=lambda path: lambda: None,
        )

    def open(self, snapshot_entries: int = 10_000, pending_max: int = 1000) -> QuorumController:
        self.controller = open_quorum_controller(
            self.directory,
            self.threads,
            RecordingHost(self.failures),
            options=QuorumOptions(snapshot_entries=snapshot_entries, pending_max=pending_max),
        )
        return self.controller

    async def start(self, snapshot_entries: int = 10_000, pending_max: int = 1000) -> QuorumController:
        controller = self.open(snapshot_entries, pending_max)
        await controller.start()
        starts = self.directory.record_start()
        await controller.register(
            Registration(CLUSTER, 0, controller.incarnation, DIRECTORY, LISTENERS, starts=starts)
        )
        return controller


def new_disk() -> FakeDisk:
    disk = FakeDisk()
    format_solo(disk, "/data", cluster_id=CLUSTER, broker_id=0, directory_id=DIRECTORY)
    return disk


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    one = Broker(new_disk())
    await one.start()
    yield one
    await one.controller.close()
    one.threads.shutdown()


async def reopened(disk: FakeDisk) -> ClusterImage:
    """The image that the next process finds."""
    after = Broker(disk)
    try:
        controller = after.open()
        await controller.start()
        image = controller.image
        await controller.close()
        return image
    finally:
        after.threads.shutdown()


def create(name: str, settings: StreamSettings | None = None) -> Decision:
    stream_id = name.encode().rjust(16, b"\0")

    def decision(image: ClusterImage) -> Command | None:
        return decide.create_stream(
            image, name, settings or StreamSettings(), stream_id=stream_id, created_us=1
        )

    return decision


def names(image: ClusterImage) -> set[str]:
    return set(image.names)


async def test_it_is_a_controller_that_leads_and_votes_alone(broker: Broker) -> None:
    controller: Controller = broker.controller

    assert (controller.leader, controller.voters) == (0, (0,))
    assert controller.image.cluster_id == CLUSTER


async def test_what_was_answered_is_there_after_a_loss_of_power(broker: Broker) -> None:
    for number in range(5):
        await broker.controller.change(create(f"s{number}"))

    image = await reopened(broker.disk.crash())

    assert image == broker.controller.image
    assert names(image) == {f"s{number}" for number in range(5)}


async def test_every_crash_point_of_a_busy_start_keeps_what_was_answered() -> None:
    disk = new_disk()
    rng = random.Random(7)
    answered: set[str] = set()
    found: list[tuple[set[str], FakeDisk]] = []
    disk.before = lambda operation: found.append((set(answered), disk.crash(rng)))
    for _ in range(3):
        one = Broker(disk)
        controller = await one.start(snapshot_entries=7)
        for _ in range(5):
            group = [f"s{len(answered) + number}" for number in range(3)]
            await asyncio.gather(*(controller.change(create(name)) for name in group))
            answered.update(group)
        await controller.close()
        one.threads.shutdown()
    disk.before = None

    assert len(found) > 50
    for must, after in found:
        image = await reopened(after)
        assert names(image) >= must
        assert all(part.leader_epoch <= 3 for stream in image.streams.values() for part in stream.partitions)


async def test_changes_at_once_share_writes_and_syncs(broker: Broker) -> None:
    syncs: list[Operation] = []
    broker.disk.before = lambda operation: syncs.append(operation) if operation.name == "datasync" else None

    await asyncio.gather(*(broker.controller.change(create(f"s{number}")) for number in range(200)))

    assert len(syncs) <= 3
    assert len(broker.controller.image.streams) == 200


async def test_of_two_that_want_a_name_at_once_one_gets_it_and_the_other_the_reason(broker: Broker) -> None:
    requests = [create("orders", StreamSettings(partitions=count)) for count in (1, 2)]

    first, second = await asyncio.gather(*map(broker.controller.change, requests), return_exceptions=True)

    assert not isinstance(first, BaseException)
    assert isinstance(second, StreamExists)


async def test_creating_twice_at_once_is_success_twice_and_one_stream(broker: Broker) -> None:
    first, second = await asyncio.gather(*(broker.controller.change(create("orders")) for _ in range(2)))

    assert first.command is not None
    assert second.command is None
    assert second.image.stream_named("orders") == first.image.stream_named("orders")


async def test_a_success_without_a_change_waits_for_what_it_rests_on(broker: Broker) -> None:
    broker.disk.fail("datasync")

    results = await asyncio.gather(
        *(broker.controller.change(create("orders")) for _ in range(2)), return_exceptions=True
    )

    assert [type(result) for result in results] == [StorageFailed, StorageFailed]


async def test_a_refusal_that_rests_on_a_change_that_failed_is_not_given(broker: Broker) -> None:
    broker.disk.fail("pwrite", errno.ENOSPC, path="/raft/")
    requests = [create("orders", StreamSettings(partitions=count)) for count in (1, 2)]

    results = await asyncio.gather(*map(broker.controller.change, requests), return_exceptions=True)

    assert [type(result) for result in results] == [DiskFull, DiskFull]
    assert names(broker.controller.image) == set()


async def test_a_full_disk_refuses_definitely_and_the_next_change_works(broker: Broker) -> None:
    broker.disk.fail("pwrite", errno.ENOSPC, path="/raft/")

    with pytest.raises(DiskFull) as raised:
        await broker.controller.change(create("orders"))
    assert raised.value.definite
    assert raised.value.retriable
    await broker.controller.change(create("other"))

    assert names(await reopened(broker.disk.crash())) == {"other"}


async def test_on_a_full_disk_metadata_uses_the_reserve_which_is_made_again_later() -> None:
    disk = new_disk()
    disk.capacity = 50_000
    one = Broker(disk, reserve_bytes=10_000)
    controller = await one.start()
    filler = disk.open("/data/filler", create=True)
    filler.pwrite([bytes(disk.free_bytes("/data"))], 0)

    await controller.change(create("orders"))
    released = not one.directory.reserve.held
    filler.truncate(0)
    await controller.change(create("other"))
    await controller.close()
    one.threads.shutdown()

    assert released
    assert one.directory.reserve.held
    assert names(await reopened(disk.crash())) == {"orders", "other"}


async def test_a_write_that_fails_is_refused_definitely(broker: Broker) -> None:
    broker.disk.fail("pwrite", errno.EIO, path="/raft/")

    with pytest.raises(Unavailable):
        await broker.controller.change(create("orders"))

    assert names(await reopened(broker.disk.crash())) == set()


async def test_a_failed_flush_ends_the_broker(broker: Broker) -> None:
    broker.disk.fail("datasync")

    with pytest.raises(StorageFailed) as raised:
        await broker.controller.change(create("orders"))
    assert not raised.value.definite
    assert len(broker.failures) == 1
    with pytest.raises(StorageFailed):
        await broker.controller.change(create("other"))
    assert names(broker.controller.image) == set()


async def test_watchers_are_told_before_the_one_who_asked_and_until_they_stop(broker: Broker) -> None:
    told: list[tuple[int, set[str]]] = []
    unwatch = broker.controller.watch(lambda old, new: told.append((old.version, names(new))))
    version = broker.controller.image.version

    await broker.controller.change(create("a"))
    assert told == [(version, {"a"})]
    await broker.controller.change(create("a"))
    unwatch()
    unwatch()
    await broker.controller.change(create("b"))

    assert told == [(version, {"a"})]


async def test_a_watcher_that_raises_disturbs_nobody(broker: Broker) -> None:
    told: list[int] = []
    broker.controller.watch(lambda old, new: 1 // 0)  # type: ignore[arg-type]
    broker.controller.watch(lambda old, new: told.append(new.version))

    change = await broker.controller.change(create("a"))

    assert told == [change.image.version]


async def test_a_caller_that_goes_away_does_not_stop_the_change(broker: Broker) -> None:
    waiting = asyncio.create_task(broker.controller.change(create("orders")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await broker.controller.change(create("other"))

    assert names(broker.controller.image) == {"orders", "other"}


async def test_producer_ids_are_never_given_twice_even_across_restarts() -> None:
    disk = new_disk()
    given: list[int] = []
    for _ in range(3):
        one = Broker(disk)
        controller = await one.start()
        given += await asyncio.gather(
            *(controller.allocate_producer_id() for _ in range(PRODUCER_ID_BLOCK + 5))
        )
        one.threads.shutdown()
        disk = disk.crash()

    assert len(set(given)) == len(given) == 3 * (PRODUCER_ID_BLOCK + 5)
    assert min(given) > 0


async def test_a_block_of_producer_ids_costs_one_entry(broker: Broker) -> None:
    before = broker.controller.image.version

    for _ in range(PRODUCER_ID_BLOCK):
        await broker.controller.allocate_producer_id()

    assert broker.controller.image.version == before + 1


async def test_snapshots_replace_the_log_and_give_the_same_image() -> None:
    disk = new_disk()
    one = Broker(disk)
    controller = await one.start(snapshot_entries=10)
    for number in range(55):
        await controller.change(create(f"s{number}"))
    await controller.close()
    one.threads.shutdown()

    snapshots = [name for name in disk.list("/data/raft") if name.startswith("snapshot")]

    assert len(snapshots) == 2
    assert await reopened(disk.crash()) == controller.image


async def test_a_snapshot_that_does_not_fit_is_tried_again_later() -> None:
    disk = new_disk()
    one = Broker(disk)
    controller = await one.start(snapshot_entries=10)
    disk.fail("create", errno.ENOSPC, path="snapshot")
    for number in range(20):
        await controller.change(create(f"s{number}"))
    await controller.close()
    one.threads.shutdown()

    assert any(name.startswith("snapshot") for name in disk.list("/data/raft"))
    assert one.failures == []


async def test_too_many_changes_at_once_are_refused_and_may_be_tried_again() -> None:
    one = Broker(new_disk())
    controller = await one.start(pending_max=5)

    results = await asyncio.gather(
        *(controller.change(create(f"s{number}")) for number in range(10)), return_exceptions=True
    )
    await controller.close()
    one.threads.shutdown()

    refused = [result for result in results if isinstance(result, BaseException)]
    assert {type(error) for error in refused} == {ResourceExhausted}
    assert len(controller.image.streams) == 10 - len(refused) >= 5


async def test_closing_waits_for_what_is_on_its_way_and_refuses_the_rest(broker: Broker) -> None:
    changing = asyncio.create_task(broker.controller.change(create("orders")))
    await asyncio.sleep(0)

    await broker.controller.close()

    assert names((await changing).image) == {"orders"}
    with pytest.raises(Stopping):
        await broker.controller.change(create("other"))
    assert names(await reopened(broker.disk.crash())) == {"orders"}


async def test_after_a_clean_stop_a_log_that_lost_its_end_is_refused(broker: Broker) -> None:
    await broker.controller.change(create("orders"))
    await broker.controller.close()
    path = f"/data/raft/{1:020d}.log"
    broker.disk.open(path).truncate(broker.disk.file_size(path) - 8)

    with pytest.raises(DataDirectoryError, match="was committed"):
        await reopened(broker.disk)


async def test_on_a_log_that_others_vote_on_nobody_is_elected_alone() -> None:
    disk = FakeDisk()
    format_solo(disk, "/data", cluster_id=CLUSTER, broker_id=0, directory_id=DIRECTORY)
    other = FakeDisk()
    format_solo(other, "/data", cluster_id=CLUSTER, broker_id=1, directory_id=b"e" * 16)
    disk.open("/data/meta.json").truncate(0)
    file = disk.open("/data/meta.json")
    file.pwrite([other.tree()["/data/meta.json"]], 0)

    one = Broker(disk)
    controller = one.open()
    starting = asyncio.create_task(controller.start())
    await asyncio.wait([starting], timeout=0.3)
    voters, leader, started = controller.voters, controller.leader, starting.done()
    starting.cancel()
    await controller.close()
    one.threads.shutdown()

    assert (voters, leader, started) == ((0,), None, False)


async def test_meta_and_log_of_different_clusters_are_refused() -> None:
    disk, other = new_disk(), FakeDisk()
    format_solo(other, "/data", cluster_id=b"x" * 16, broker_id=0, directory_id=DIRECTORY)
    disk.open("/data/meta.json").truncate(0)
    disk.open("/data/meta.json").pwrite([other.tree()["/data/meta.json"]], 0)

    with pytest.raises(DataDirectoryError, match="name different clusters"):
        await reopened(disk)


async def test_a_decision_that_refuses_changes_nothing(broker: Broker) -> None:
    operations = broker.disk.operations

    with pytest.raises(TidelogError):
        await broker.controller.change(create("no name"))

    assert broker.disk.operations == operations
