"""A folder is opened for the assignment that it was made for, and for no other (R16)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from simulator.disk import FakeDisk
from storage.batches import T0, item, read_all, records
from storage.logs import KEY, ROOT, Bench
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.offline.rewrite import recover_data_directory
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.folder.identity import read_assignment, read_identity
from tidelog_broker.storage.folder.page_cache_mark import FILE_NAME as PAGE_CACHE


def filled(assignment: int = 0) -> Bench:
    bench = Bench()
    if assignment:
        bench.store.remove_replica(bench.log)
        bench.wanted = bench.wanted._replace(assignment=assignment)
        bench.log = bench.store.opener.create(bench.wanted)
    bench.fill(4)
    bench.sync()
    bench.checkpoint()
    return bench


@pytest.mark.parametrize("assignment", [0, 41])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_comes_back_with_its_assignment(assignment: int, clean: bool) -> None:
    bench = filled(assignment)
    if clean:
        bench.stop()

    log = bench.reopen()

    assert (log.assignment, log.end_offset, log.recovered) == (assignment, 12, not clean)
    assert read_identity(bench.disk, bench.folder) == KEY


@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_of_an_earlier_assignment_leaves_and_an_empty_log_takes_its_place(clean: bool) -> None:
    bench = filled(7)
    if clean:
        bench.stop()
    bench.wanted = bench.wanted._replace(assignment=41)

    opened = bench.open()

    assert (opened.lost, opened.strays) == ([], [])
    log = opened.logs[KEY]
    assert (log.assignment, log.end_offset, log.start_offset) == (41, 0, 0)
    assert list(opened.left) == [KEY]
    assert read_assignment(bench.disk, opened.left[KEY]) == 7
    assert opened.left[KEY] in bench.store.folders.deleted(), "it goes one day"


def test_in_spite_of_a_crash_anywhere_the_old_folder_is_set_aside_once() -> None:
    bench = filled(7)
    crashes: list[FakeDisk] = []
    rng = random.Random(3)

    def before(operation: object) -> None:
        crashes.append(bench.disk.copy())
        crashes.append(bench.disk.crash(random.Random(rng.getrandbits(32))))

    bench.wanted = bench.wanted._replace(assignment=41)
    bench.disk.before = before
    bench.open()
    bench.disk.before = None

    for disk in crashes:
        store = LogStore(disk, ROOT)
        opened = store.opener.open_all([bench.wanted], same_boot=False)
        assert (opened.lost, opened.strays) == ([], [])
        assert (opened.logs[KEY].assignment, read_all(opened.logs[KEY])) == (41, b"")
        assert [read_assignment(disk, path) for path in store.folders.deleted()][-1:] == [7]
    assert len(crashes) > 20


def test_a_folder_of_a_later_assignment_than_the_metadatas_is_kept_and_reported() -> None:
    bench = filled(41)
    bench.wanted = bench.wanted._replace(assignment=7)

    opened = bench.open()

    assert opened.logs == {}
    (lost,) = opened.lost
    assert lost.stray
    assert "assignment 41" in lost.reason
    assert read_assignment(bench.disk, bench.folder) == 41


def test_a_log_that_was_quarantined_does_not_stand_in_for_a_later_assignment() -> None:
    bench = filled(7)
    bench.store.quarantine(bench.log, "it contradicts its leader's")
    bench.store.checkpoints.remove_partition(KEY)
    bench.store.checkpoints.save()

    assert [one.wanted.assignment for one in bench.open().lost] == [7]
    bench.wanted = bench.wanted._replace(assignment=41)
    assert bench.reopen().assignment == 41


def test_a_quarantine_that_comes_late_leaves_the_next_replicas_folder_alone() -> None:
    bench = filled(7)
    old = bench.log
    bench.wanted = bench.wanted._replace(assignment=41)
    bench.log = bench.store.opener.create(bench.wanted)

    bench.store.quarantine(old, "it contradicts its leader's")

    assert read_assignment(bench.disk, bench.folder) == 41


def test_a_directory_is_repaired_whatever_assignments_its_folders_are_of(tmp_path: Path) -> None:
    files, root = OsFiles(), str(tmp_path)
    format_solo(files, root, cluster_id=b"c" * 16, broker_id=1, directory_id=b"d" * 16)
    wanted = Bench().wanted._replace(assignment=41)
    log = LogStore(files, root).opener.create(wanted)
    log.writer.append([item(records(3))], leader_epoch=1, now_us=T0)
    log.close()

    told = list(recover_data_directory(files, root))

    assert any("the log ends at offset 3" in line for line in told), told
    assert LogStore(files, root).opener.open_all([wanted], same_boot=True).logs[KEY].end_offset == 3


# --- R17, and what else a flush and a cut say


def test_the_log_of_a_page_cache_stream_is_marked_before_it_takes_anything() -> None:
    bench = Bench()
    bench.wanted = bench.wanted._replace(partition=1, page_cache=True)
    made = bench.store.opener.create(bench.wanted)

    disk = bench.disk.crash(random.Random(1))

    assert made.page_cache
    assert disk.exists(f"{made.folder}/{PAGE_CACHE}")


@pytest.mark.parametrize("clean", [True, False])
def test_the_mark_is_durable_when_it_is_made_and_survives_starting_over(clean: bool) -> None:
    bench = filled()
    assert not bench.log.page_cache

    bench.log.mark_page_cache()
    bench.log.cutter.restart_at(5, lambda start: bench.store.saved.save_restart(bench.log, start))
    if clean:
        bench.stop()
    bench.disk = bench.disk.crash(random.Random(1))

    assert bench.reopen(same_boot=False).page_cache
    bench.log.clear_page_cache()
    assert not bench.reopen().page_cache
