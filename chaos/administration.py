"""An administrator's commands under load: replicas leave a broker and return, durability changes and back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import tidelog
from chaos.cluster import ClusterFailure
from tidelog.errors import TidelogError

T = TypeVar("T")

AGAIN_SECONDS: Final = 0.2
DONE_SECONDS_MAX: Final = 60.0
"""How long a command is repeated: a cluster without a controller takes none."""

AT_ONCE_CHANCE: Final = 0.5
"""How often a replica is moved back at once, before it can have left."""


class Administration:
    """Commands of an administrator. Each is undone at its end, also if a fault happens meanwhile."""

    def __init__(self, client: Callable[[], tidelog.Client], rng: random.Random) -> None:
        self._client = client
        self._rng = rng
        self._turn = asyncio.Lock()
        """One command at a time: of two moves of one stream, the second would restore what the first did."""

    async def move_away_and_back(self, broker: int, seconds: float) -> None:
        """Takes a broker out of the replicas of one stream, and puts it back. Raises `ClusterFailure`."""
        async with self._turn:
            await self._move(broker, seconds)

    async def _move(self, broker: int, seconds: float) -> None:
        streams = await _done(lambda: self._client().list_streams(), "the streams are listed")
        held = {
            (stream.name, placed.partition): list(placed.replicas)
            for stream in streams
            for placed in stream.partitions
            if broker in placed.replicas and len(placed.replicas) > 1
        }
        names = sorted({name for name, _ in held})
        if not names:
            return
        name = self._rng.choice(names)
        before = {key: replicas for key, replicas in held.items() if key[0] == name}
        away = {key: [one for one in replicas if one != broker] for key, replicas in before.items()}
        await _done(lambda: self._client().reassign(away), f"move {name} away from broker {broker}")
        if self._rng.random() >= AT_ONCE_CHANCE:
            await asyncio.sleep(seconds)
        await _done(lambda: self._client().reassign(before), f"move {name} back to broker {broker}")

    async def switch_durability(self, seconds: float) -> None:
        """Gives one stream the other durability for a while. Raises `ClusterFailure`."""
        async with self._turn:
            await self._switch(seconds)

    async def _switch(self, seconds: float) -> None:
        streams = await _done(lambda: self._client().list_streams(), "the streams are listed")
        stream = self._rng.choice(sorted(streams, key=lambda one: one.name))
        own = stream.config.durability
        other = tidelog.Durability.PAGE_CACHE if own is tidelog.Durability.FSYNC else tidelog.Durability.FSYNC
        for durability, pause in ((other, seconds), (own, 0.0)):
            await _done(
                lambda kind=durability: self._client().alter_stream(stream.name, durability=kind),  # type: ignore[misc]
                f"set the durability of {stream.name} to {durability}",
            )
            await asyncio.sleep(pause)


async def _done(command: Callable[[], Awaitable[T]], what: str) -> T:
    """Repeats a command until it succeeds. Raises `ClusterFailure` after `DONE_SECONDS_MAX`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DONE_SECONDS_MAX
    while True:
        try:
            return await command()
        except TidelogError as error:
            if loop.time() > deadline:
                raise ClusterFailure(
                    f"An administrator's command failed for {DONE_SECONDS_MAX:g} s ({what}): {error}"
                ) from error
            await asyncio.sleep(AGAIN_SECONDS)
