"""What was acknowledged survives loss of power and kill -9.

The whole runs: TIDELOG_CRASH_POINTS=200 TIDELOG_KILL_ROUNDS=50.
"""

import os
import random
from pathlib import Path

import pytest

from broker import crash_points, kill_rounds

CRASH_POINTS = int(os.environ.get("TIDELOG_CRASH_POINTS", "25"))
KILL_ROUNDS = int(os.environ.get("TIDELOG_KILL_ROUNDS", "3"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("syncfs", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_after_a_loss_of_power_no_acknowledged_record_is_missing(tmp_path: Path, syncfs: bool) -> None:
    seed = random.randrange(1 << 32)
    batches = 150 if CRASH_POINTS < 100 else 600
    report = await crash_points.run(tmp_path, points=CRASH_POINTS, batches=batches, seed=seed, syncfs=syncfs)
    print(f"seed {seed}: {report}")  # noqa: T201
    assert report.points == CRASH_POINTS
    assert report.acknowledged > 1000
    assert report.checked > report.acknowledged


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_after_kill_9_nothing_acknowledged_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    report = await kill_rounds.run(tmp_path, rounds=KILL_ROUNDS, seed=seed)
    print(f"seed {seed}: {report}")  # noqa: T201
    assert report.rounds == KILL_ROUNDS
    assert report.acknowledged > 100
