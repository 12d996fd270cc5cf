"""A run with faults by a seeded plan. Runs that measure one event are in `scenarios`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.administration import Administration
from chaos.faults import Faults
from chaos.harness import Harness
from chaos.plan import Kind, Step, schedule
from chaos.setup import Setup
from chaos.verdict import Verdict
from chaos.volumes import Volumes

PAUSE_WORTH_SECONDS: Final = 1.0
"""A pause without acknowledgements is printed from this length on."""


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line."""

    seed: int
    seconds: float
    kinds: Sequence[Kind]
    copies: int = 3
    plant: str = ""
    """The name of a planted bug."""
    tls: bool = False


class Run:
    """Injects the faults of a schedule into a cluster under load."""

    def __init__(self, options: RunOptions, folder: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._harness = Harness(
            Setup(copies=options.copies, tls=options.tls), folder, say, seed=options.seed, plant=options.plant
        )
        harness = self._harness
        volumes = Volumes(harness.cluster, harness.rng, harness.say)
        administration = Administration(lambda: harness.client, harness.rng)
        self._faults = Faults(harness.cluster, harness.healed, volumes, administration)

    async def play(self) -> Verdict:
        """Runs from the first process to the verdict. Leaves no process."""
        verdict = await self._harness.play(self._inject_faults)
        verdict.faults.update({str(kind): count for kind, count in self._faults.done.items()})
        return verdict

    async def _inject_faults(self) -> None:
        harness = self._harness
        steps = schedule(harness.rng, harness.cluster.brokers, self._options.kinds)
        end = time.monotonic() + self._options.seconds
        while self._options.kinds and time.monotonic() < end:
            step = next(steps)
            if step.healed_first:
                await harness.healed("every replica is in sync")
            await self._perform(step)
            await asyncio.sleep(step.pause_seconds)
            await harness.revive()
            pause = harness.recording.take_pause()
            if pause.seconds > PAUSE_WORTH_SECONDS:
                harness.say(f"no acknowledgement for {pause}")
        if not self._options.kinds:
            await asyncio.sleep(self._options.seconds)

    async def _perform(self, step: Step) -> None:
        for fault in step.faults:
            self._harness.say(str(fault))
        # Each fault is performed to its end, also if the other one fails.
        performed = (self._faults.perform(fault) for fault in step.faults)
        for outcome in await asyncio.gather(*performed, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
