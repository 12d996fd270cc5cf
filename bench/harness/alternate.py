"""Measures a case: ours and the peers in turn, round after round, each on a quiet machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from time import monotonic
from typing import TypeVar

from bench.harness.case import Case
from bench.harness.model import OURS, Contender, Missing, Sample
from bench.harness.results import Entry, entries_of
from bench.harness.stage import Stage
from bench.measuring.machine import QUIET_CPUS_MAX, ForeignLoad, settle

T = TypeVar("T")


def say(text: str) -> None:
    """Prints progress to standard error."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def enter(
    case: Case, stage: Stage, peers: Sequence[str], absent: Callable[[str, str], None]
) -> list[Contender]:
    """Ours, then the chosen peers that this machine can run.

    `absent` is called with each other peer and with what the machine lacks for it.
    """
    contenders = [case.ours(stage)]
    for peer in peers:
        for entrant in case.peers.get(peer, ()):
            try:
                contenders.append(entrant(stage))
            except Missing as lack:
                absent(peer, str(lack))
    return contenders


def order_of(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """The order of one round: every second round is backwards, so that drift favours no contender."""
    return list(contenders) if number % 2 == 0 else list(reversed(contenders))


class Rounds:
    """The measurements of one case. A peer that fails is left out with a message; our failure is raised."""

    def __init__(self, case: Case, contenders: Sequence[Contender]) -> None:
        self.case = case
        self.standing = list(contenders)
        self.samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
        self.foreign_cpus: list[float] = []

    def prepare(self, closing: ExitStack) -> None:
        for contender in list(self.standing):
            if contender.close is not None:
                closing.callback(self._give_back, contender)
            if contender.warm is not None:
                say(f"{self.case.name}: preparing {contender.name}")
                self._attempt(contender, contender.warm)

    def run(self, number: int, rounds: int, seconds: float) -> None:
        for contender in order_of(self.standing, number):
            settle()
            load = ForeignLoad()
            sample = self._attempt(contender, partial(contender.measure, seconds))
            foreign = load.end()
            if sample is None:
                continue
            self.samples[contender.name].append(sample)
            self.foreign_cpus.append(foreign)
            busy = f", foreign load {foreign:.2f} CPUs" if foreign > QUIET_CPUS_MAX else ""
            say(
                f"{self.case.name}: round {number + 1}/{rounds} {contender.name}: "
                f"{sample.value:,.4g} {self.case.unit}{busy}"
            )

    def _attempt(self, contender: Contender, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except Exception as error:
            # An exception of a peer's server or client ends that peer; the other contenders go on.
            if contender.name == OURS:
                raise
            say(f"{self.case.name}: {contender.name} is left out: {type(error).__name__}: {error}")
            self.standing.remove(contender)
            return None

    def _give_back(self, contender: Contender) -> None:
        assert contender.close is not None
        try:
            contender.close()
        except Exception as error:
            what = f"cleaning up after {contender.name} failed"
            say(f"{self.case.name}: {what}: {type(error).__name__}: {error}")


def measure(case: Case, contenders: Sequence[Contender], *, rounds: int, seconds: float) -> list[Entry]:
    """Measures all rounds of one case; an entry for each peer."""
    began = monotonic()
    rounds = min(rounds, case.rounds_max or rounds)
    run = Rounds(case, contenders)
    with ExitStack() as closing:
        run.prepare(closing)
        for number in range(rounds):
            run.run(number, rounds, seconds)
    busiest = max(run.foreign_cpus)
    if busiest > QUIET_CPUS_MAX:
        say(f"{case.name}: other programs used {busiest:.2f} CPUs; do not trust these figures")
    facts = {
        "rounds": rounds,
        "seconds": seconds,
        "foreign_cpus": {"median": round(median(run.foreign_cpus), 3), "max": round(busiest, 3)},
        "quiet": busiest <= QUIET_CPUS_MAX,
        "case_seconds": round(monotonic() - began, 1),
    }
    return entries_of(case, run.standing, run.samples, facts)
