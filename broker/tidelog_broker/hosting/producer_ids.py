"""Checks that a producer id was given out; a log takes no other ids (R8).

If two clients had one id, the broker would take records of one client for duplicates of the other's records,
and neither client would notice. Ids ascend over the whole cluster, so an id was not given out if it is at or
above the image's next id. The image here may lag behind an id that another broker gave out a moment ago. So
before an id is refused for good, the broker waits until its image has everything that was committed when the
batch arrived.

Neighbours: `controller` gives out ids; `api.produce` checks ids here before it appends.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.errors import InvalidRequest, TidelogError, Unavailable, UnknownProducer
from tidelog.records import NO_PRODUCER_ID
from tidelog_broker.core.metadata.decisions.streams import PRODUCER_IDS_END
from tidelog_broker.quorum.controller import Controller

CONFIRM_SECONDS_MAX: Final = 1.0
"""How long a batch waits for the newest image; then it is refused, and the client may try again."""

CONFIRM_RETRY_MS: Final = 100


class ProducerIds:
    """The producer ids that the cluster gave out, as this broker knows them. Runs on one event loop."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._turn = asyncio.Lock()
        self._begun = 0
        self._confirmed = 0
        """The number of the newest confirmation that succeeded."""

    def __repr__(self) -> str:
        return f"<ProducerIds next={self._controller.image.next_producer_id} confirmations={self._begun}>"

    def is_known(self, producer_id: int) -> bool:
        """Whether the image here says that the id was given out; also True for `NO_PRODUCER_ID`.

        Raises `InvalidRequest` for an id that is never given out.
        """
        if producer_id == NO_PRODUCER_ID:
            return True
        if not 0 < producer_id < PRODUCER_IDS_END:
            raise InvalidRequest(
                f"producer id {producer_id} is not valid: InitProducer gives ids between 1 and "
                f"{PRODUCER_IDS_END - 1}; ask InitProducer for one",
                producer_id=producer_id,
            )
        return producer_id < self._controller.image.next_producer_id

    async def check(self, producer_id: int) -> None:
        """Returns if the id was given out. Raises `UnknownProducer` if it certainly was not.

        Raises `Unavailable` if the answer is not known now, and `InvalidRequest` like `is_known`.
        """
        if self.is_known(producer_id):
            return
        try:
            async with asyncio.timeout(CONFIRM_SECONDS_MAX):
                await self._confirm()
        except (TidelogError, TimeoutError) as error:
            raise Unavailable(
                f"this broker cannot tell yet whether producer id {producer_id} was given out: "
                f"{error or 'the controller does not answer'}",
                retry_after_ms=CONFIRM_RETRY_MS,
            ) from error
        if not self.is_known(producer_id):
            raise UnknownProducer(
                f"producer id {producer_id} was never given out in this cluster; ask InitProducer for one",
                producer_id=producer_id,
            )

    async def _confirm(self) -> None:
        """Waits until the image has everything that is committed now.

        Calls that arrive while a confirmation runs share the next confirmation.
        """
        wanted = self._begun + 1
        async with self._turn:
            if self._confirmed >= wanted:
                return
            self._begun += 1
            number = self._begun
            await self._controller.newest()
            self._confirmed = number
