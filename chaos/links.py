"""Which links between brokers are cut, as a table. No I/O; `proxy` moves the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

Link = tuple[int, int]
"""From the first broker to the second: one direction."""


class Links:
    """The state of every link: passable or cut."""

    def __init__(self) -> None:
        self._cuts: dict[Link, int] = {}
        """By link: how many faults cut it at present. Faults may overlap."""
        self._passable: dict[Link, asyncio.Event] = {}

    def is_cut(self, link: Link) -> bool:
        return bool(self._cuts.get(link))

    def cut(self, links: Iterable[Link]) -> None:
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1
            self._event(link).clear()

    def heal(self, links: Iterable[Link]) -> None:
        for link in links:
            assert self._cuts.get(link), f"{link} is not cut"
            self._cuts[link] -= 1
            if not self._cuts[link]:
                self._event(link).set()

    async def passable(self, link: Link) -> None:
        """Waits while a link is cut. Its bytes are late and not lost, as with TCP."""
        await self._event(link).wait()

    def _event(self, link: Link) -> asyncio.Event:
        found = self._passable.get(link)
        if found is None:
            found = self._passable[link] = asyncio.Event()
            found.set()
        return found


def around(broker: int, brokers: Iterable[int]) -> list[Link]:
    """All links of a broker, both directions."""
    others = [other for other in brokers if other != broker]
    return [*((broker, other) for other in others), *((other, broker) for other in others)]


def outgoing(broker: int, brokers: Iterable[int]) -> list[Link]:
    return [(broker, other) for other in brokers if other != broker]


def incoming(broker: int, brokers: Iterable[int]) -> list[Link]:
    return [(other, broker) for other in brokers if other != broker]


def between(one: int, other: int) -> list[Link]:
    return [(one, other), (other, one)]
