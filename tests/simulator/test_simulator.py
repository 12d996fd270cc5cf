"""The simulator itself: a seed always gives the same trace, correct code passes, planted bugs are caught."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from simulator import coverage
from simulator.mutations import Mutation, mutations
from simulator.mutations.plant import uncaught_mutations
from simulator.plans.plan import SECONDS
from simulator.plans.profiles.catalog import PROFILES
from simulator.plans.swarm import SECONDS_LONG, plan_of
from simulator.run import simulate

ROOT = Path(__file__).parents[2]

QUICKLY_CAUGHT = {
    "acks all is answered when the leader alone has it": 2,
    "a follower acknowledges before its fsync": 2,
    "the high watermark waits only for a majority": 2,
    "an epoch is sent before its beginning is on disk": 2,
    "a folder that the image does not know is removed": 4,
    "a restarted leader keeps its epoch": 4,
    "a turn of an earlier leadership is sent": 3,
    "an isr counts members that are proposed to leave": 2,
    "a task is taken at any row": 2,
}
"""Bugs that few seeds catch, with the number of seeds. For all bugs: `python -m simulator --mutations`."""


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_seed_passes_and_does_some_work(seed: int) -> None:
    result = simulate(seed)
    assert result.ok, f"{result.violation}\npython -m simulator --seed {seed}"
    long_enough = result.seconds >= (SECONDS_LONG if seed % 5 == 0 else SECONDS)
    assert long_enough or result.events >= result.plan.events_max
    assert result.marks.get("R3 acknowledged", 0) + result.marks.get("M Raft elected", 0) > 1


def test_jobs_with_sinks_write_each_batch_exactly_once_or_say_so() -> None:
    result = simulate(1, "sinks")

    assert result.ok, f"{result.violation}\npython -m simulator --seed 1 --profile sinks"
    assert result.marks["S2 rows were there"] > 5
    assert result.marks["S3 straggler fenced"] > 0
    assert result.marks["S3 closed"] > 0
    assert result.marks["S4 committed"] > 10
    assert result.marks["S4 found out"] > 0


def fingerprint_of(seed: int, hash_seed: str) -> str:
    """The fingerprint of a seed in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"from simulator.run import simulate; print(simulate({seed}).fingerprint)"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=True, cwd=ROOT,
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


@pytest.mark.long
def test_a_seed_gives_the_same_trace_for_every_hash_seed() -> None:
    first, second = fingerprint_of(3, "1"), fingerprint_of(3, "4242")
    assert first == second
    assert len(first) == 16
    assert fingerprint_of(4, "1") != first


def test_each_plan_has_few_faults_and_all_plans_together_have_all() -> None:
    plans = [plan_of(seed) for seed in range(1, 301)]
    seen = {fault for plan in plans for fault in plan.faults}
    assert len(seen) >= 10, sorted(seen)
    assert any(not plan.faults for plan in plans) or any(len(plan.faults) <= 2 for plan in plans)
    assert {plan.brokers for plan in plans} >= {3, 4, 5, 7}
    assert sum(plan.seconds == SECONDS_LONG for plan in plans) * 5 >= len(plans), "a fifth is long"
    assert min(plan.seconds for plan in plans) == SECONDS


def quickly_caught() -> list[Mutation]:
    return [one for one in mutations() if one.name in QUICKLY_CAUGHT]


@pytest.mark.parametrize("planted", quickly_caught(), ids=lambda planted: planted.name)
def test_a_planted_bug_is_caught(planted: Mutation) -> None:
    with planted.plant():
        for seed in range(1, QUICKLY_CAUGHT[planted.name] + 1):
            result = simulate(seed, planted.profile)
            if not result.ok:
                assert not result.broken, result.violation
                return
    raise AssertionError(f"{planted.name}: not caught within {QUICKLY_CAUGHT[planted.name]} seeds")


def test_the_list_of_quickly_caught_bugs_names_existing_bugs() -> None:
    assert len(quickly_caught()) == len(QUICKLY_CAUGHT)
    assert len({one.name for one in mutations()}) == len(mutations()) >= 25


def test_every_planted_bug_finds_the_code_that_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that a planted bug replaces in a module must be used through that module. A module that imports
    the name directly keeps the old value, and the bug would do nothing."""
    replaced: set[tuple[ModuleType, str]] = set()
    original = mock.patch.object

    def seen(owner: Any, name: str, *values: Any) -> Any:
        if isinstance(owner, ModuleType):
            replaced.add((owner, name))
        return original(owner, name, *values)

    monkeypatch.setattr(mock.patch, "object", seen)
    for one in (*mutations(), *uncaught_mutations()):
        with one.plant():
            pass
    through_modules = {
        (node.value.id, node.attr)
        for package in ("broker", "client", "simulator")
        for path in (ROOT / package).rglob("*.py")
        if "mutations" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert len(replaced) > 30
    for module, name in replaced:
        loaded = {node.id for node in ast.walk(ast.parse(inspect.getsource(module)))
                  if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip
        short = module.__name__.rpartition(".")[2]
        assert name in loaded or (short, name) in through_modules, f"{module.__name__}.{name}"


def test_each_rule_has_a_planted_bug_and_each_bug_an_existing_profile() -> None:
    broken = {rule for one in mutations() for rule in one.rule.split(", ")}
    assert set(coverage.RULES) <= broken, sorted(set(coverage.RULES) - broken)
    assert {one.profile for one in mutations()} <= {"", *PROFILES}


def test_a_profile_has_only_the_faults_that_it_is_about() -> None:
    for profile in PROFILES:
        plan = plan_of(7, profile)
        assert plan == plan_of(7, profile)
        assert plan.seed == 7
        assert plan != plan_of(7)
    assert plan_of(7, "losses").everybody > 0
    assert plan_of(7, "losses").disk_losses == 0


def test_a_rule_that_no_run_exercised_is_reported() -> None:
    marks = {f"{rule} something": 2 for rule in coverage.RULES if rule != "R9"}
    assert coverage.unmet(marks) == ["R9"]
    assert coverage.unmet({**marks, "R9 met": 1}) == []
    assert coverage.by_rule({"R1 truncated": 2, "R1 diverged": 1, "R10 another run": 5})["R1"] == 3
    assert any("something" in line for line in coverage.table(marks))
