"""The schedule of faults: the same for the same seed, every kind in every round, never two disk faults."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from chaos.plan import ALONE, HEALED_FIRST, Kind, schedule

BROKERS = (0, 1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_schedule(seed: int) -> None:
    one, two = (list(islice(schedule(random.Random(seed), BROKERS, list(Kind)), 50)) for _ in range(2))

    assert one == two


def test_every_round_has_every_kind_once_as_its_first_fault() -> None:
    steps = list(islice(schedule(random.Random(1), BROKERS, list(Kind)), 3 * len(Kind)))

    for at in range(0, len(steps), len(Kind)):
        assert sorted(step.faults[0].kind for step in steps[at : at + len(Kind)]) == sorted(Kind)


def test_a_disk_is_lost_alone_and_only_when_every_replica_is_in_sync() -> None:
    steps = list(islice(schedule(random.Random(2), BROKERS, list(Kind)), 500))
    alone = [step for step in steps if any(fault.kind in ALONE for fault in step.faults)]

    assert len(alone) >= 100
    assert all(len(step.faults) == 1 for step in alone)
    assert all(step.healed_first for step in alone if step.faults[0].kind in HEALED_FIRST)


def test_two_faults_at_the_same_time_act_on_different_brokers() -> None:
    steps = list(islice(schedule(random.Random(3), BROKERS, list(Kind)), 500))
    pairs = [step.faults for step in steps if len(step.faults) == 2]

    assert len(pairs) >= 50
    assert all(one.broker != other.broker for one, other in pairs)


def test_a_fault_prints_its_broker_and_its_duration() -> None:
    steps = islice(schedule(random.Random(4), BROKERS, [Kind.KILL]), 20)

    for fault in (step.faults[0] for step in steps):
        assert str(fault) == f"kill of broker {fault.broker}, for {fault.seconds:.1f} s"
