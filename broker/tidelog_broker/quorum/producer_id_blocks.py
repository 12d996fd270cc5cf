"""Producer ids for this broker: a block of them costs one entry of the metadata log (R8)."""

from __future__ import annotations

import asyncio

from tidelog_broker.membership.failure_reporter import AskController
from tidelog_broker.membership.wire import AllocateBlock, Block
from tidelog_broker.quorum.changes import CHANGE_SECONDS_MAX
from tidelog_broker.quorum.controller import PRODUCER_ID_BLOCK


class ProducerIdBlocks:
    """Gives out producer ids that were never given out before. Belongs to one event loop."""

    def __init__(self, me: int, ask: AskController) -> None:
        self._me = me
        self._ask = ask
        self._ids = range(0)
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerIdBlocks left={len(self._ids)}>"

    async def allocate(self) -> int:
        """Raises what a request to the controller raises."""
        async with self._lock:
            if not self._ids:
                block = await self._ask(AllocateBlock(self._me, PRODUCER_ID_BLOCK), CHANGE_SECONDS_MAX)
                assert isinstance(block, Block), block
                self._ids = range(block.first, block.first + block.count)
            producer_id, self._ids = self._ids[0], self._ids[1:]
            return producer_id
