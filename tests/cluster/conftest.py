"""Three broker processes and what acknowledged writers know of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

import tidelog
from support.trio import Trio
from support.waiting import until
from tidelog.errors import TidelogError

STREAM = "orders"
BEFORE = 200
"""Acknowledgements before something happens."""

WAIT_SECONDS = 20.0

Place = tuple[int, int]
"""Partition and offset."""


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """As users run it where speed matters."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    one = Trio(tmp_path)
    try:
        one.start()
        yield one
    finally:
        one.stop()


class Writers:
    """Some that each wait for an acknowledgement before they send again, and note what they were told."""

    def __init__(self, address: str, count: int = 4, *, stream: str = STREAM) -> None:
        self.acknowledged: dict[Place, bytes] = {}
        self.errors: list[TidelogError] = []
        self._address = address
        self._stream = stream
        self._count = count
        self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Writers:
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(self._count)]
        await self.acknowledged_more(BEFORE)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        for end in await asyncio.gather(*self._tasks, return_exceptions=True):
            # Cancelled is what they are to be, and `CancelledError` is no `Exception`.
            if isinstance(end, Exception):
                raise end

    async def acknowledged_more(self, count: int) -> None:
        """Waits until so many more are acknowledged."""
        target = len(self.acknowledged) + count
        await until(
            lambda: len(self.acknowledged) >= target,
            lambda: f"{len(self.acknowledged)} of {target} are acknowledged",
            WAIT_SECONDS,
        )

    async def _write(self, writer: int) -> None:
        async with (
            tidelog.connect(self._address) as client,
            client.producer(self._stream) as producer,
        ):
            number = 0
            while not self._stopped:
                value = b"%d-%d" % (writer, number)
                try:
                    receipt = await producer.send(value, key=value)
                except TidelogError as error:
                    self.errors.append(error)
                else:
                    assert (receipt.partition, receipt.offset) not in self.acknowledged
                    self.acknowledged[receipt.partition, receipt.offset] = value
                number += 1


async def read_all(address: str, stream: str = STREAM) -> dict[Place, bytes]:
    """Everything committed; no offset comes twice, and no value."""
    found: dict[Place, bytes] = {}
    async with tidelog.connect(address) as client:
        async for record in client.reader(stream, start="earliest", follow=False):
            place = record.partition, record.offset
            assert place not in found
            assert record.value is not None
            found[place] = bytes(record.value)
    assert len(set(found.values())) == len(found)
    return found


def missing(acknowledged: dict[Place, bytes], found: dict[Place, bytes]) -> list[Place]:
    """What was acknowledged and is not there, or is another record."""
    return [place for place, value in sorted(acknowledged.items()) if found.get(place) != value]
