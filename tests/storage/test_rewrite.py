"""`tidelog-broker recover`: what stands in a directory after a failed flush was mended (DESIGN 4.3, R6)."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

import pytest

from simulator.disk import CrashPoint, FakeDisk, Operation
from storage.batches import STREAM_ID
from storage.logs import KEY, ROOT, Bench
from storage.test_data_directory import CLUSTER, DIRECTORY, no_lock
from tidelog.model import Durability, StreamConfig
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.replication.effects import Truncate
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.messages import Diverged
from tidelog_broker.errors import DirectoryDamaged, StorageFailure
from tidelog_broker.model import Entry, EntryType
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.offline.rewrite import recover_data_directory
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.whole_files import read_file
from tidelog_broker.storage.raft.log import RaftLog
from tidelog_broker.storage.raft.recovery import open_raft_log
from tidelog_broker.storage.raft.segment import segment_path
from tidelog_broker.upkeep.suspects import Suspects, mark_unflushed

BOOT = "the kernel that still runs"
RAFT = f"{ROOT}/raft"
RAFT_LOG = segment_path(RAFT, 1)


def open_directory(disk: FakeDisk) -> DataDirectory:
    return DataDirectory.open(disk, ROOT, reserve_bytes=0, read_boot_id=lambda: BOOT, lock=no_lock)


def started() -> Bench:
    """A partition in the data directory of a broker that runs."""
    disk = FakeDisk()
    format_solo(disk, ROOT, cluster_id=CLUSTER, broker_id=3, directory_id=DIRECTORY)
    open_directory(disk).record_start()
    return Bench(disk=disk)


def fail_a_flush(bench: Bench) -> None:
    bench.disk.fail("datasync", errno.EIO, path=".log")
    with pytest.raises(StorageFailure):
        bench.sync()
    open_directory(bench.disk).mark_failed("a flush failed")


def recover(bench: Bench) -> list[str]:
    return list(recover_data_directory(bench.disk, ROOT, lock=no_lock))


def open_metadata(disk: FakeDisk) -> RaftLog:
    directory = open_directory(disk)
    return open_raft_log(disk, RAFT, same_boot=directory.same_boot, reserve=directory.reserve)


def put_file(disk: FakeDisk, path: str) -> None:
    disk.open(path, create=True).close()


def high_watermark(bench: Bench) -> int:
    return LogStore(bench.disk, ROOT).checkpoints.high_watermark(KEY)


def uncommitted() -> Bench:
    """30 records on the disk, of which 12 were committed; then a flush failed."""
    bench = started()
    bench.fill(10)
    bench.sync()
    bench.store.saved.save([(bench.log, 12)])
    bench.fill(1)
    fail_a_flush(bench)
    return bench


def test_recover_does_not_call_committed_what_was_only_written() -> None:
    bench = uncommitted()

    recover(bench)

    assert high_watermark(bench) == 12
    assert bench.reopen(same_boot=False).end_offset == 30


def test_a_follower_still_cuts_what_was_not_committed_after_recover() -> None:
    bench = uncommitted()
    recover(bench)
    log = bench.reopen(same_boot=False)
    follower = FollowerPartition(2, 1, 2, log, fsync=True, high_watermark=high_watermark(bench))
    follower.begin()

    assert follower.received(Diverged(2, 1, 24, unclean=False)) == [Truncate(24)]


def test_no_start_after_recover_trusts_the_page_cache_of_a_failed_flush() -> None:
    bench = started()
    bench.fill(5)
    assert open_directory(bench.disk).same_boot
    fail_a_flush(bench)

    recover(bench)

    directory = open_directory(bench.disk.crash())
    assert not directory.same_boot
    assert directory.meta.start_count == 1, "it was no start"
    # The first start that has come to its end may be believed again.
    directory.record_start()
    assert open_directory(directory.files).same_boot  # type: ignore[arg-type]


def test_recover_forgets_the_boot_before_it_changes_anything_else() -> None:
    bench = started()
    bench.fill(5)
    bench.sync()
    bench.fill(5)
    fail_a_flush(bench)
    changes: list[tuple[str, str]] = []

    def note(operation: Operation) -> None:
        if "meta.json" not in operation.path and operation.name != "sync_dir":
            on_disk = json.loads(read_file(bench.disk.crash(), f"{ROOT}/meta.json"))
            changes.append((operation.path, on_disk["boot_id"]))

    bench.disk.before = note
    recover(bench)

    assert any(path.startswith(bench.folder) for path, _ in changes)
    assert {boot for _, boot in changes} == {""}


def test_a_recover_that_died_can_be_run_again_and_changes_nothing_of_the_outcome() -> None:
    whole = uncommitted()
    first = whole.disk.operations
    recover(whole)
    died = 0
    for number in range(first, whole.disk.operations):
        bench = uncommitted()
        bench.disk.crash_at = number
        with pytest.raises(CrashPoint):
            recover(bench)
        bench.disk = bench.disk.copy()
        bench.disk.crash_at = None
        if not bench.disk.exists(f"{ROOT}/FAILED"):
            continue
        died += 1
        recover(bench)

        assert not open_directory(bench.disk).same_boot, number
        assert high_watermark(bench) == 12, number
        assert bench.reopen(same_boot=False).end_offset == 30, number
    assert died > 10


def test_recover_keeps_all_that_an_fsync_stream_acknowledged_without_suspicion() -> None:
    """What a flush that fails takes was not acknowledged: acknowledgements wait for their flush (4.3)."""
    bench = started()
    bench.fill(5)
    bench.sync()
    acknowledged = bench.log.durable_offset
    bench.fill(5)
    fail_a_flush(bench)

    recover(bench)
    log = bench.reopen(same_boot=open_directory(bench.disk).same_boot)

    assert log.end_offset == acknowledged
    assert not log.suspect


@pytest.mark.parametrize(
    ("durability", "replicas", "told"),
    [
        (Durability.PAGE_CACHE, (1, 2, 3), [(1, 15)]),
        (Durability.FSYNC, (1, 2, 3), []),
        # Nobody could make it good; that it is the only one, the controller knows.
        (Durability.PAGE_CACHE, (1,), [(1, 15)]),
    ],
)
def test_a_replica_that_answered_from_the_page_cache_is_suspect_after_recover(
    durability: Durability, replicas: tuple[int, ...], told: list[tuple[int, int]]
) -> None:
    bench = started()
    bench.fill(5)
    bench.sync()
    bench.checkpoint()
    bench.fill(5)
    fail_a_flush(bench)
    recover(bench)
    placed = PartitionImage(replicas, replicas, leader=1, leader_epoch=1, partition_epoch=1)
    config = StreamConfig(replication_factor=len(replicas), durability=durability)
    stream = StreamImage("orders", STREAM_ID, config, 1, 0, (placed,))
    image = ClusterImage(streams=ClusterImage().streams.set(STREAM_ID, stream))

    # As `ImageFollower.open_logs` does with what the directory says.
    same_boot = open_directory(bench.disk).same_boot
    log = bench.reopen(same_boot=same_boot)
    if not same_boot:
        mark_unflushed(image, {KEY: log})

    assert log.end_offset == 15
    found = Suspects().tell({KEY: log})
    assert [(one.leader_epoch, one.log_end_offset) for one in found] == told
    # Durably, for this start may die before it has told anybody.
    assert bench.disk.crash().exists(f"{bench.folder}/suspect") == bool(told)


# --- what no start accepts is not called mended


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda disk: disk.flip(RAFT_LOG, 9), "entry 1 of the metadata log .* up to entry 2 was committed"),
        (lambda disk: disk.remove(f"{RAFT}/hard-state"), "hard-state is missing"),
        (lambda disk: disk.flip(f"{RAFT}/hard-state", 9), "hard-state fails its checksum"),
        (lambda disk: disk.remove(RAFT_LOG), "holds no segment of the metadata log"),
        (lambda disk: disk.remove_tree(RAFT), "hard-state is missing"),
    ],
)
def test_recover_refuses_a_metadata_log_that_no_start_accepts(
    damage: Callable[[FakeDisk], None], said: str
) -> None:
    bench = uncommitted()
    damage(bench.disk)

    with pytest.raises(DirectoryDamaged, match=said):
        recover(bench)

    assert bench.disk.exists(f"{ROOT}/FAILED")


def test_recover_cuts_a_torn_end_of_the_metadata_log_as_a_start_does() -> None:
    bench = started()
    metadata = open_metadata(bench.disk)
    metadata.append([Entry(3, 1, EntryType.COMMAND, b"torn")])
    metadata.close()
    file = bench.disk.open(RAFT_LOG)
    file.truncate(file.size() - 1)
    file.close()
    bench.fill(1)
    fail_a_flush(bench)

    assert recover(bench)[-1] == "the directory is mended; the broker can start"

    assert open_metadata(bench.disk).last_index == 2


# --- what lies below streams/ and is no partition


def test_recover_leaves_files_that_are_no_folders_of_partitions_and_says_so() -> None:
    bench = uncommitted()
    stream = bench.folder.rsplit("/", 2)[1]
    strays = ["bar", f"{stream}/note.txt"]
    for stray in strays:
        put_file(bench.disk, f"{ROOT}/streams/{stray}")

    said = recover(bench)

    for stray in strays:
        assert f"{stray}: this is a file, not the folder of a partition; it stays as it is" in said
        assert bench.disk.exists(f"{ROOT}/streams/{stray}")
    assert said[-1] == "the directory is mended; the broker can start"
    assert bench.reopen(same_boot=False).end_offset == 30
