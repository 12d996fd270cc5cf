"""Faults of volumes: a data directory is put back from an earlier copy, or one bit of a file is flipped."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster, ClusterFailure
from tidelog.cli.local.waiting import holds_within_async
from tidelog_broker.__main__ import EXIT_DAMAGED

HEALED_SECONDS_MAX: Final = 90.0
"""Until a flipped bit of a segment is repaired. The scrubber must find it first."""

LOOK_SECONDS: Final = 0.1


class Volumes:
    """Changes data directories. One that its broker refuses is emptied, as the broker's message advises."""

    def __init__(self, cluster: Cluster, rng: random.Random, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._rng = rng
        self._say = say

    async def put_back(self, broker: int, seconds: float, healed: Callable[[str], Awaitable[None]]) -> None:
        """Puts a copy from before the last start back. Raises `ClusterFailure` if the broker runs on it."""
        cluster = self._cluster
        copy = cluster.folder / f"copy-of-broker-{broker}"
        await cluster.kill(broker)
        await asyncio.to_thread(shutil.copytree, cluster.data(broker), copy)
        await cluster.launch(broker)
        await cluster.ready(broker)
        await healed(f"broker {broker} serves again after its volume was copied")
        await asyncio.sleep(seconds)
        await cluster.kill(broker)
        await cluster.erase(broker)
        await asyncio.to_thread(copy.rename, cluster.data(broker))
        await cluster.launch(broker)
        if await cluster.ready_or_ended(broker) != EXIT_DAMAGED:
            raise ClusterFailure(
                f"Broker {broker} did not refuse a volume that was put back from an earlier copy."
            )
        await self._empty(broker)

    async def rot(self, broker: int) -> None:
        """Flips one bit of some file. Raises `ClusterFailure` if a segment is not repaired."""
        cluster = self._cluster
        await cluster.kill(broker)
        path, position = self._chosen(cluster.data(broker))
        rotten = _turn_over(path, position, 1 << self._rng.randrange(8))
        self._say(f"one bit of byte {position} of {path.relative_to(cluster.folder)} is flipped")
        await cluster.launch(broker)
        code = await cluster.ready_or_ended(broker)
        if code == EXIT_DAMAGED:
            await self._empty(broker)
        elif code is not None:
            raise ClusterFailure(
                f"Broker {broker} ended with code {code} on a rotten file; expected code {EXIT_DAMAGED}. "
                f"The file: {path}"
            )
        elif path.suffix == ".log":
            await self._overwritten(path, position, rotten)

    def _chosen(self, folder: Path) -> tuple[Path, int]:
        """Chooses a kind of file, then a file, then a byte. Most bytes of a data directory are records."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
        kinds: dict[str, list[Path]] = {}
        for path in files:
            inside = path.relative_to(folder).parts[0]
            kinds.setdefault(f"{inside} {path.suffix or path.name}", []).append(path)
        path = self._rng.choice(kinds[self._rng.choice(sorted(kinds))])
        return path, self._rng.randrange(path.stat().st_size)

    async def _overwritten(self, path: Path, position: int, rotten: int) -> None:
        if not await holds_within_async(
            lambda: _byte(path, position) != rotten, HEALED_SECONDS_MAX, pause=LOOK_SECONDS
        ):
            raise ClusterFailure(
                f"Byte {position} of {path} was not repaired within {HEALED_SECONDS_MAX:g} s."
            )

    async def _empty(self, broker: int) -> None:
        await self._cluster.kill(broker)
        await self._cluster.erase(broker)
        await self._cluster.launch(broker)


def _turn_over(path: Path, position: int, bit: int) -> int:
    """Flips one bit in a file, and returns the new value of the byte."""
    with path.open("r+b") as file:
        file.seek(position)
        rotten = file.read(1)[0] ^ bit
        file.seek(position)
        file.write(bytes((rotten,)))
    return rotten


def _byte(path: Path, position: int) -> int | None:
    """The byte at `position`; None: the file has no such byte, or is gone."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            found = file.read(1)
    except FileNotFoundError:
        return None
    return found[0] if found else None
