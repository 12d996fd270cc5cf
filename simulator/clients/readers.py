"""Simulated readers: they follow a partition with the client library, and get errors for truncations
(R13)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from simulator.checks import Checks
from simulator.clients.client import SimClient
from simulator.node import Key
from simulator.watch.mirror import Link
from tidelog.client import Client
from tidelog.errors import LogTruncated, OffsetOutOfRange, TidelogError
from tidelog.history import Read, runs_of
from tidelog.model import Position

READ_AGAIN_S: Final = 0.2


class SimReader(SimClient):
    """Reads one partition from its start, and follows it for ever."""

    def __init__(self, checks: Checks, key: Key, *given: Any) -> None:
        super().__init__(*given)
        self._checks = checks
        self._key = key
        self.position = Position(0)
        self._last: Link | None = None
        """The batch that it read last; None: an error made it begin at another offset."""
        self._asking: asyncio.Task[None] | None = None
        self.run(self._main)

    async def _main(self) -> int:
        while True:
            with suppress(TidelogError):
                async with self.client() as client:
                    await self._with(client)
            # No broker answered at its start.
            await asyncio.sleep(READ_AGAIN_S)

    async def _with(self, client: Client) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._ask_for_the_end(client))
        while True:
            try:
                await self._read(client)
            except LogTruncated as error:
                self._jump(int(error.details["divergence_offset"]))
            except OffsetOutOfRange as error:
                self._jump(int(error.details["log_start_offset"]))
            except TidelogError:
                await asyncio.sleep(READ_AGAIN_S)

    async def _ask_for_the_end(self, client: Client) -> None:
        """R15: asks for the end from time to time. The checks read the answer at the broker (`listening`)."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.2, 2.0))
            latest = client.reader(self.stream, start="latest", partitions=[self.partition], follow=False)
            with suppress(TidelogError):
                await latest.next_batch()
            await latest.aclose()

    def _jump(self, offset: int) -> None:
        self.position, self._last = Position(offset), None
        self.history.rewind(self.name, self.place)

    async def _read(self, client: Client) -> None:
        reader = client.reader(self.stream, start=self.position, partitions=[self.partition])
        try:
            async for batch in reader.fetched_batches():
                with self._checks.kept():
                    self._last = self._checks.reads_on(
                        self.name, self._key, self._last, batch.leader_epoch, batch.base_offset
                    )
                self.history.reads.extend(
                    Read(self.name, self.place, batch.base_offset + index, producer, first, count)
                    for index, producer, first, count in runs_of(batch.columns.column("value"))
                )
                self.position = batch.position
        finally:
            await reader.aclose()
