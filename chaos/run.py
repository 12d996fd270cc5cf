"""One run with faults by a seeded plan: the stage, and what goes wrong on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.cast import Cast
from chaos.faults import Faults
from chaos.people import People
from chaos.plan import Kind, Step, schedule
from chaos.stage import Stage
from chaos.verdict import Verdict
from chaos.volumes import Volumes

PAUSE_WORTH_SECONDS: Final = 1.0
"""A pause of acknowledgements that is worth a line."""


@dataclass(frozen=True)
class Wish:
    """What somebody asked for."""

    seed: int
    seconds: float
    kinds: Sequence[Kind]
    copies: int = 3
    plant: str = ""
    """The name of a planted bug."""


class Run:
    """See the module."""

    def __init__(self, wish: Wish, folder: Path, say: Callable[[str], None]) -> None:
        self._wish = wish
        self._stage = Stage(Cast(copies=wish.copies), folder, say, seed=wish.seed, plant=wish.plant)
        stage = self._stage
        volumes = Volumes(stage.cluster, stage.rng, stage.say)
        people = People(lambda: stage.client, stage.rng)
        self._faults = Faults(stage.cluster, stage.healed, volumes, people)

    async def play(self) -> Verdict:
        """Everything from the first process to the verdict; leaves no process."""
        verdict = await self._stage.play(self._do_harm)
        verdict.faults.update({str(kind): count for kind, count in self._faults.done.items()})
        return verdict

    async def _do_harm(self) -> None:
        stage = self._stage
        steps = schedule(stage.rng, stage.cluster.brokers, self._wish.kinds)
        end = time.monotonic() + self._wish.seconds
        while self._wish.kinds and time.monotonic() < end:
            step = next(steps)
            if step.healed_first:
                await stage.healed("every replica is in sync")
            await self._perform(step)
            await asyncio.sleep(step.pause_seconds)
            await stage.revive()
            pause = stage.recording.take_pause()
            if pause.seconds > PAUSE_WORTH_SECONDS:
                stage.say(f"nothing was acknowledged for {pause}")
        if not self._wish.kinds:
            await asyncio.sleep(self._wish.seconds)

    async def _perform(self, step: Step) -> None:
        for fault in step.faults:
            self._stage.say(str(fault))
        # Each has an end of its own, whatever becomes of the other.
        performed = (self._faults.perform(fault) for fault in step.faults)
        for outcome in await asyncio.gather(*performed, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
