"""A replica that leaves, is set aside, or may not be complete; and what is refused for want of others."""

from __future__ import annotations

import random

from storage.batches import T0, item, read_all, records
from storage.logs import KEY, ROOT, Bench
from tidelog.errors import NotEnoughReplicas, OutOfOrderSequence
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.log.write_batch import Appended

TOO_FEW = NotEnoughReplicas("the ISR is too small")


def test_too_small_an_isr_refuses_new_batches_but_answers_repeats_and_errors() -> None:
    bench = Bench()
    first = item(records(2), producer_id=7, sequence=0)
    gap = item(records(2), producer_id=7, sequence=9)
    new = item(records(2), producer_id=7, sequence=2)
    bench.append(first)

    outcomes = bench.log.writer.append(
        [new, first, gap, item(records(1))], leader_epoch=1, now_us=T0, refuse_new=TOO_FEW
    )

    assert outcomes[0] is TOO_FEW
    assert outcomes[1] == Appended(0, 1, 1, T0, duplicate=True)
    assert isinstance(outcomes[2], OutOfOrderSequence)
    assert outcomes[3] is TOO_FEW
    assert bench.log.end_offset == 2
    assert bench.append(new)[0].base_offset == 2


def test_a_log_that_was_marked_suspect_is_so_after_a_crash_until_that_is_cleared() -> None:
    bench = Bench()
    bench.fill(2)
    bench.sync()
    bench.checkpoint()
    bench.log.mark_suspect("power was lost")
    bench.log.mark_suspect("once more")

    bench.disk = bench.disk.crash(random.Random(1))
    assert bench.reopen(same_boot=False).suspect
    bench.log.clear_suspect()
    bench.disk = bench.disk.crash(random.Random(2))
    assert not bench.reopen().suspect


def test_a_replica_that_left_is_gone_and_begins_with_nothing_if_it_comes_back() -> None:
    bench = Bench()
    bench.fill(4)
    bench.sync()
    bench.log.start.advance(6)
    bench.checkpoint()

    path = bench.store.remove_replica(bench.log)

    assert bench.store.folders.deleted() == [path]
    bench.disk = bench.disk.crash(random.Random(1))
    log = bench.reopen()
    assert (log.start_offset, log.end_offset, log.suspect) == (0, 0, False)
    assert bench.store.folders.deleted() == [path]
    again = bench.store.remove_replica(log)
    assert sorted(bench.store.folders.deleted()) == sorted([path, again])
    for one in (path, again):
        bench.store.folders.remove_deleted(one)
    assert bench.store.folders.deleted() == []


def test_a_replica_that_was_reassigned_during_downtime_ignores_its_old_folder() -> None:
    bench = Bench()
    bench.fill(4)
    bench.sync()
    bench.checkpoint()
    left = bench.disk.tree()[f"{bench.folder}/{0:020d}.log"]
    store = LogStore(bench.disk, ROOT)
    assert store.opener.open_all([], same_boot=True).strays == [bench.folder]

    log = store.opener.create(bench.wanted)
    log.writer.append([item(records(1))], leader_epoch=9, now_us=T0)
    log.flusher.sync()

    assert bench.disk.tree()[f"{bench.folder.rpartition('/')[0]}/.stray-0/{0:020d}.log"] == left
    again = LogStore(bench.disk, ROOT).opener.open_all([bench.wanted], same_boot=False)
    assert (again.strays, again.lost) == ([], [])
    assert again.logs[KEY].end_offset == 1
    assert again.logs[KEY].epochs.latest == 9


def test_a_new_log_beside_a_quarantined_one_begins_at_the_log_start() -> None:
    bench = Bench()
    bench.fill(4)
    bench.sync()
    bench.log.start.advance(6)
    bench.checkpoint()
    before = read_all(bench.log)

    bench.store.quarantine(bench.log, "its leader's log is another one")
    assert [lost.wanted for lost in bench.open().lost] == [bench.wanted]
    made = bench.store.opener.create(bench.wanted)

    assert (made.start_offset, made.end_offset) == (6, 6)
    aside = bench.folder.replace("/0", "/.quarantine-0")
    kept = [name for name in bench.disk.list(aside) if name.endswith(".log")]
    assert kept
    assert bench.disk.file_size(f"{aside}/{kept[0]}") >= len(before)
    bench.disk = bench.disk.crash(random.Random(1))
    opened = bench.open()
    assert list(opened.logs) == [KEY]
    assert opened.lost == []
