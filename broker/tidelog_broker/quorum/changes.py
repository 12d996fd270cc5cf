"""Changes to the metadata: decided on the newest image, proposed, and answered once they are committed.

Neighbours: `leadership` says whether this broker may propose, `driver` brings the entries to a majority of
disks, and `pending_changes` keeps the callers that wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.errors import ResourceExhausted, Stopping, StorageFailed, TimedOut
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.raft.errors import Busy, NotRaftLeader
from tidelog_broker.errors import BrokerError, StorageFailure
from tidelog_broker.quorum.active_controller import ActiveController
from tidelog_broker.quorum.committed_image import CommittedImage
from tidelog_broker.quorum.controller import Change, Decision
from tidelog_broker.quorum.driver import RaftDriver
from tidelog_broker.quorum.leadership import ControllerLeadership
from tidelog_broker.quorum.pending_changes import refused_by_disk

CHANGE_SECONDS_MAX: Final = 10.0
"""How long a change waits for its commit; after that it is not known whether it will be committed."""

ELECTION_SECONDS_MAX: Final = 3.0
"""How long a change waits for a controller."""


class MetadataChanges:
    """Proposes changes while this broker is the controller. Belongs to one event loop."""

    def __init__(
        self,
        committed: CommittedImage,
        leadership: ControllerLeadership,
        raft: Callable[[], RaftDriver],
        pending_max: int,
    ) -> None:
        self._committed = committed
        self._waiting = committed.waiting
        self._leadership = leadership
        self._raft = raft
        self._pending_max = pending_max
        self._refusal: Callable[[], Exception] | None = None
        """Why every change is refused from now on; None: the broker goes on."""

    def __repr__(self) -> str:
        return f"<MetadataChanges {self._waiting!r}>"

    async def change(self, decision: Decision) -> Change:
        """As `controller.Controller.change`."""
        active = self._accepting() or await self._elected()
        try:
            command = decision(active.tip)
        except Exception:
            # The refusal may rest on a change that is not committed yet.
            await self._submit(active, [])
            raise
        image = await self._submit(active, [] if command is None else [command])
        return Change(image, command)

    async def propose(self, commands: Sequence[Command]) -> ClusterImage:
        """As `controller.Controller.propose`."""
        active = self._accepting() or await self._elected()
        return await self._submit(active, commands)

    async def confirm(self) -> None:
        """Returns when the image here has everything that was committed when this was called (ReadIndex).

        Raises `NotController`: only the controller can know, and it asks a majority (M5).
        """
        try:
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                await self._raft().read()
        except (NotRaftLeader, Busy, ConnectionError, TimeoutError) as error:
            raise self._leadership.not_controller() from error

    # --- the end

    async def stop(self, seconds: float) -> None:
        """Refuses new changes, and waits for the pending ones for at most so many seconds."""
        if self._refusal is None:
            self._refusal = lambda: Stopping("the broker is stopping; try again when it has started again")
        await self._waiting.drained(seconds)

    def fail(self, error: StorageFailure) -> None:
        """The disk failed: it is not known which pending changes are on it."""
        self._refusal = lambda: StorageFailed(f"the broker is ending: {error}")
        self._waiting.refuse_behind(0, StorageFailed(f"the metadata log failed: {error}"))

    def end_run(self, error: BrokerError) -> None:
        """This run must not go on."""
        if self._refusal is None:
            self._refusal = lambda: Stopping(f"the broker is ending: {error}")
        self._waiting.refuse_behind(0, Stopping(f"the broker is ending: {error}"))

    def withdraw(self, saved_index: int, error: OSError) -> None:
        """The disk refused the entries behind `saved_index`; no other broker has them."""
        self._waiting.refuse_behind(saved_index, refused_by_disk(error))

    # --- steps

    def _accepting(self) -> ActiveController | None:
        """None: this broker may still become the controller. Raises what refuses every change now."""
        if self._refusal is not None:
            raise self._refusal()
        if len(self._waiting) >= self._pending_max:
            raise ResourceExhausted(
                f"{self._pending_max} metadata changes wait to be written; try again",
                retry_after_ms=100,
            )
        driver, active = self._raft(), self._leadership.active
        if active is not None and driver.refusal is not None and len(driver.node.configuration.voters) > 1:
            # What is proposed now waits behind a write that the disk refuses.
            raise refused_by_disk(driver.refusal)
        return active

    async def _elected(self) -> ActiveController:
        """The active controller, once it is known whether this broker is the controller."""
        leadership, driver = self._leadership, self._raft()

        def known() -> bool:
            return leadership.active is not None or leadership.elsewhere or driver.refusal is not None

        try:
            await self._committed.until(known, ELECTION_SECONDS_MAX)
        except TimeoutError:
            raise leadership.not_controller() from None
        active = self._accepting()
        if active is not None:
            return active
        if driver.refusal is not None and not leadership.elsewhere:
            raise refused_by_disk(driver.refusal)
        raise leadership.not_controller()

    async def _submit(self, active: ActiveController, commands: Sequence[Command]) -> ClusterImage:
        try:
            index = active.propose(commands) if commands else active.node.log.last_index
        except Busy as error:
            raise ResourceExhausted(f"{error}; try again", retry_after_ms=100) from error
        except NotRaftLeader as error:
            raise self._leadership.not_controller() from error
        if index <= self._raft().applied:
            return self._committed.now
        term = active.node.log.term(index)
        assert term is not None, (index, active)
        done = self._waiting.wait(index, term)
        try:
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                # A caller that stops waiting does not stop the change.
                return await asyncio.shield(done)
        except TimeoutError:
            done.cancel()
            raise TimedOut(
                f"the change was not committed within {CHANGE_SECONDS_MAX:g} s; it may be committed later"
            ) from None
