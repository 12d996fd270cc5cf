"""Crash at every operation of a scripted run, recover, and nothing acknowledged is missing.

`TIDELOG_CRASH_SUBSETS` sets how many random subsets of unsynced pages are tried at each
operation (default 3), `TIDELOG_CRASH_SEED` which ones.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import pytest

from simulator.disk import FakeDisk, Operation
from storage.batches import item, records
from storage.crash_model import Model
from storage.workload import ROOT, Key, Run, script
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.log.write_batch import Appended

SUBSETS = int(os.environ.get("TIDELOG_CRASH_SUBSETS", "3"))
SEED = int(os.environ.get("TIDELOG_CRASH_SEED", "3"))


@dataclass(slots=True)
class Crash:
    """What the next process finds, and what must be true of it."""

    disk: FakeDisk
    same_boot: bool
    models: dict[Key, Model]
    wanted: list[Wanted]
    story: str


class Enumeration:
    """Runs the script once and takes crashes out of it at every operation."""

    def __init__(self, seed: int, subsets: int, *, every: int = 1, whole: bool = False) -> None:
        self.rng = random.Random(seed)
        self.subsets = subsets
        self.every = every
        self.whole = whole
        self.cases = 0
        self.operations = 0

    def run(self) -> None:
        disk = FakeDisk()
        run = Run(disk, whole=self.whole)
        step = "begin"

        def before(operation: Operation) -> None:
            if operation.number % self.every == 0:
                self.crash(run, f"{step}, then before {operation}")

        disk.before = before
        for step in script(run):
            self.crash(run, f"after {step}")
        self.operations = disk.operations

    def crash(self, run: Run, story: str) -> None:
        seeds = [self.rng.getrandbits(32) for _ in range(self.subsets)]
        disks = [(run.disk.copy(), True, "a kill")]
        disks += [(run.disk.crash(random.Random(seed)), False, f"a power cut {seed}") for seed in seeds]
        for disk, same_boot, kind in disks:
            self.cases += 1
            models = {key: model.copy() for key, model in run.models.items()}
            crash = Crash(disk, same_boot, models, list(run.wanted), f"{kind}: {story}")
            try:
                self.examine(crash)
            except Exception as error:
                error.add_note(crash.story)
                raise

    def examine(self, crash: Crash) -> None:
        recover_and_go_on(crash)


def recover_and_go_on(crash: Crash) -> None:
    crash.disk.capacity = None
    store = LogStore(crash.disk, ROOT)
    opened = store.opener.open_all(crash.wanted, same_boot=crash.same_boot)
    assert not opened.lost, opened.lost
    assert not opened.strays or len(crash.models) > len(crash.wanted)
    for key, log in opened.logs.items():
        crash.models[key].check(log)
    for log in opened.logs.values():
        end = log.end_offset
        outcome = log.writer.append(
            [item(records(2))], leader_epoch=1000, now_us=log.writer.last_append_us + 1
        )[0]
        assert isinstance(outcome, Appended)
        assert outcome.base_offset == end
    store.sync(opened.logs.values())
    settled = {key: log.end_offset for key, log in opened.logs.items()}
    again = LogStore(crash.disk.crash(), ROOT).opener.open_all(crash.wanted, same_boot=False)
    assert not again.lost, again.lost
    assert {key: log.end_offset for key, log in again.logs.items()} == settled


@pytest.mark.slow
def test_whatever_the_crash_acknowledged_records_are_there_and_no_others() -> None:
    enumeration = Enumeration(seed=SEED, subsets=SUBSETS)

    enumeration.run()

    print(f"{enumeration.operations} operations, {enumeration.cases} crashes")  # noqa: T201
    assert enumeration.cases > 1000


@pytest.mark.slow
def test_so_it_is_if_each_flush_is_one_of_the_whole_disk() -> None:
    enumeration = Enumeration(seed=SEED, subsets=1, whole=True)

    enumeration.run()

    assert enumeration.cases > 500


class Twice(Enumeration):
    """Crashes in the middle of the recovery too."""

    def examine(self, crash: Crash) -> None:
        disk = crash.disk
        disk.capacity = None
        points: list[tuple[FakeDisk, bool]] = []

        def before(operation: Operation) -> None:
            points.append((disk.crash(random.Random(self.rng.getrandbits(32))), False))
            # The process alone dies; another boot is recorded only once recovery is done.
            points.append((disk.copy(), crash.same_boot))

        disk.before = before
        opened = LogStore(disk, ROOT).opener.open_all(crash.wanted, same_boot=crash.same_boot)
        assert not opened.lost
        disk.before = None
        for point, same_boot in points:
            self.cases += 1
            models = {key: model.copy() for key, model in crash.models.items()}
            recover_and_go_on(Crash(point, same_boot, models, crash.wanted, crash.story))


@pytest.mark.long
def test_a_crash_in_the_middle_of_a_recovery_is_recovered_from_as_well() -> None:
    enumeration = Twice(seed=SEED, subsets=1, every=max(1, 28 // SUBSETS))

    enumeration.run()

    print(f"{enumeration.cases} crashes")  # noqa: T201
    assert enumeration.cases > 300
