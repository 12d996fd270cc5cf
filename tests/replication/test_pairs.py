"""A leader and its followers under a storm of faults: what is promised holds, and it all comes to rest.

`TIDELOG_PAIRS_SEEDS` sets how many seeds are run (default 240), `TIDELOG_PAIRS_FIRST` the first of them.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from replication.cluster import run

SEEDS = int(os.environ.get("TIDELOG_PAIRS_SEEDS", "240"))
FIRST = int(os.environ.get("TIDELOG_PAIRS_FIRST", "0"))
BLOCKS = 8
STEPS = 1200

RARE = ("truncated", "restarted", "retention", "disk lost", "proposal refused", "ISR changed")
"""What a few hundred runs must have met."""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_committed_record_is_lost_and_the_logs_agree_in_the_end(block: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(FIRST + block, FIRST + SEEDS, BLOCKS):
        met.update(run(seed, STEPS).marks)

    assert met["committed"] > 10
    assert met["led"] > 10


def test_a_few_dozen_seeds_meet_everything_that_is_rare() -> None:
    met: Counter[str] = Counter()
    for seed in range(40):
        met.update(run(seed, 2000).marks)

    assert [name for name in RARE if not met[name]] == []


def test_a_seed_gives_the_same_run_again() -> None:
    one, other = run(7, STEPS), run(7, STEPS)

    assert (one.marks, one.committed, one.now) == (other.marks, other.committed, other.now)
