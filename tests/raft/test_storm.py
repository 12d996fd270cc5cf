"""Random networks, disks, crashes and changes of the voters: one history, and calm brings progress."""

from __future__ import annotations

import pytest

from raft.raft_disk import FileDisk
from raft.storm import Storm

STEPS = 3000
SEEDS = 30
BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whatever_happens_there_is_one_history_and_calm_brings_progress(block: int) -> None:
    commits = reads = 0

    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        cluster = Storm(seed).run(STEPS)
        commits += len(cluster.committed)
        reads += cluster.reads_done

    # The storms are such that something is done in them, too.
    assert commits > 10 * SEEDS
    assert reads > SEEDS


def test_it_is_so_on_real_files_that_lose_what_was_not_synced() -> None:
    installed = 0

    for seed in range(2000, 2040):
        cluster = Storm(seed, FileDisk).run(STEPS)
        installed += sum(machine.installed for machine in cluster.machines.values())

    assert installed > 0


def test_the_storms_lose_disks_change_voters_elect_often_and_send_snapshots() -> None:
    disks = elections = changes = snapshots = 0

    for seed in range(1000, 1050):
        storm = Storm(seed)
        cluster = storm.run(STEPS)
        disks += storm.disks
        elections += len(cluster.leaders)
        changes += max(len(machine.disk.configurations) for machine in cluster.machines.values()) > 1
        snapshots += any(machine.installed for machine in cluster.machines.values())

    assert min(disks, elections - 50, changes, snapshots) > 0
