"""The committed image here, and everything that waits for it or watches it.

Entries are applied in order. Watchers are told once for entries that come together, and then
the callers of the changes are answered. Neighbours: `driver` hands out committed
entries, `pending_changes` keeps the callers that wait for an entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import decode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image
from tidelog_broker.model import Entry, EntryType, Snapshot
from tidelog_broker.quorum.active_controller import ActiveController
from tidelog_broker.quorum.controller import Watcher
from tidelog_broker.quorum.pending_changes import WaitingChanges

log = structlog.get_logger(__name__)


class CommittedImage:
    """The committed image and its watchers. Belongs to one event loop."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.now = ClusterImage() if snapshot is None else decode_image(snapshot.data)
        self.waiting = WaitingChanges()
        self._watchers: dict[object, Watcher] = {}
        self._conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<CommittedImage {self.now!r} {self.waiting!r}>"

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        key = object()
        self._watchers[key] = watcher

        def unwatch() -> None:
            self._watchers.pop(key, None)

        return unwatch

    async def until(self, condition: Callable[[], bool], seconds: float | None) -> None:
        """Raises TimeoutError. `look` checks `condition`."""
        if condition():
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._conditions.append((condition, done))
        async with asyncio.timeout(seconds):
            await done

    def look(self) -> None:
        """Something may have changed: checks the conditions that are waited for."""
        if not self._conditions:
            return
        for condition, done in self._conditions:
            if not done.done() and condition():
                done.set_result(None)
        self._conditions = [one for one in self._conditions if not one[1].done()]

    def apply(self, entries: Sequence[Entry], active: ActiveController | None) -> None:
        """`active`, if there is one, has made the images of its own entries already."""
        before = self.now
        for entry in entries:
            if entry.type is EntryType.COMMAND:
                made = None
                if active is not None:
                    made = active.images.pop(entry.index, None) if entry.term == active.term else None
                self.now = made or apply(self.now, decode_command(entry.payload), entry.index)
            self.waiting.applied(entry.index, entry.term, self.now)
        self._tell(before)
        self.waiting.answer()

    def restore(self, snapshot: Snapshot) -> None:
        """A leader's snapshot replaces the image."""
        before, self.now = self.now, decode_image(snapshot.data)
        self._tell(before)
        self.waiting.jumped(snapshot.index)

    def _tell(self, before: ClusterImage) -> None:
        if self.now is before:
            return
        for watcher in list(self._watchers.values()):
            try:
                watcher(before, self.now)
            except Exception:
                log.exception(
                    "a watcher of the metadata failed with an internal error", watcher=repr(watcher)
                )
