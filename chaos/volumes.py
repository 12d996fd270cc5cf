"""Volumes that are not what their broker left: put back from a copy, or with a bit turned over."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster, ClusterFailure
from tidelog_broker.__main__ import EXIT_DAMAGED

HEALED_SECONDS_MAX: Final = 90.0
"""Until a bit of a segment that turned over is as it was; the scrubber has to come by."""

LOOK_SECONDS: Final = 0.1


class Volumes:
    """See the module. What a broker will not run on is emptied, as it advises."""

    def __init__(self, cluster: Cluster, rng: random.Random, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._rng = rng
        self._say = say

    async def put_back(self, broker: int, seconds: float, healed: Callable[[str], Awaitable[None]]) -> None:
        """Raises `ClusterFailure` if the broker runs on the copy."""
        cluster = self._cluster
        copy = cluster.folder / f"copy-of-broker-{broker}"
        await cluster.kill(broker)
        await asyncio.to_thread(shutil.copytree, cluster.data(broker), copy)
        await cluster.launch(broker)
        await cluster.ready(broker)
        await healed(f"broker {broker} is back after it was copied")
        await asyncio.sleep(seconds)
        await cluster.kill(broker)
        await cluster.erase(broker)
        await asyncio.to_thread(copy.rename, cluster.data(broker))
        await cluster.launch(broker)
        if await cluster.ready_or_ended(broker) != EXIT_DAMAGED:
            raise ClusterFailure(f"broker {broker} was not refused on a volume that was put back from a copy")
        await self._empty(broker)

    async def rot(self, broker: int) -> None:
        """Raises `ClusterFailure` if a segment stays as it is now."""
        cluster = self._cluster
        await cluster.kill(broker)
        path, position = self._chosen(cluster.data(broker))
        rotten = _turn_over(path, position, 1 << self._rng.randrange(8))
        self._say(f"byte {position} of {path.relative_to(cluster.folder)} is wrong")
        await cluster.launch(broker)
        code = await cluster.ready_or_ended(broker)
        if code == EXIT_DAMAGED:
            await self._empty(broker)
        elif code is not None:
            raise ClusterFailure(
                f"broker {broker} ended with {code} on a file that rotted, not with {EXIT_DAMAGED}"
            )
        elif path.suffix == ".log":
            await self._overwritten(path, position, rotten)

    def _chosen(self, folder: Path) -> tuple[Path, int]:
        """A kind of file first: most of the bytes are records."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
        kinds: dict[str, list[Path]] = {}
        for path in files:
            inside = path.relative_to(folder).parts[0]
            kinds.setdefault(f"{inside} {path.suffix or path.name}", []).append(path)
        path = self._rng.choice(kinds[self._rng.choice(sorted(kinds))])
        return path, self._rng.randrange(path.stat().st_size)

    async def _overwritten(self, path: Path, position: int, rotten: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HEALED_SECONDS_MAX
        while _byte(path, position) == rotten:
            if loop.time() > deadline:
                raise ClusterFailure(
                    f"not within {HEALED_SECONDS_MAX:g} s: byte {position} of {path} is healed"
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _empty(self, broker: int) -> None:
        await self._cluster.kill(broker)
        await self._cluster.erase(broker)
        await self._cluster.launch(broker)


def _turn_over(path: Path, position: int, bit: int) -> int:
    """The byte that stands there now."""
    with path.open("r+b") as file:
        file.seek(position)
        rotten = file.read(1)[0] ^ bit
        file.seek(position)
        file.write(bytes((rotten,)))
    return rotten


def _byte(path: Path, position: int) -> int | None:
    """None: it is not there any more."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            found = file.read(1)
    except FileNotFoundError:
        return None
    return found[0] if found else None
