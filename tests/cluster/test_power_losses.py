"""What three brokers acknowledged survives that they all lose power at once.

The whole run: TIDELOG_POWER_LOSSES=100.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cluster import power_losses

POWER_LOSSES = int(os.environ.get("TIDELOG_POWER_LOSSES", "3"))
PLANTED_LOSSES_MAX = 8
"""Before the first records nothing can be missing; one of so many points lies behind them."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_after_all_brokers_lost_power_no_acknowledged_record_is_missing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    count = 60 if POWER_LOSSES < 100 else 400
    report = await power_losses.run(tmp_path, points=POWER_LOSSES, count=count, seed=seed)
    print(f"seed {seed}: {report}")  # noqa: T201
    assert report.points == POWER_LOSSES
    assert report.acknowledged > 200
    assert report.leader_epochs > 8


@pytest.mark.long
async def test_a_planted_bug_brokers_that_do_not_flush_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"lack acknowledged records|lost replicas"):
        await power_losses.run(
            tmp_path, points=PLANTED_LOSSES_MAX, count=20, seed=random.randrange(1 << 32), unflushed=(1, 2)
        )
