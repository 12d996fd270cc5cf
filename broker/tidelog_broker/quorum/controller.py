"""The metadata of the cluster as the rest of the broker uses it (DESIGN section 6).

`Controller` is the interface; `quorum_controller` has the implementation that a
broker runs, for a cluster of any size.

Decisions are made on the image that the command will be applied to, the one after all
changes that are still on their way to a majority's disks, so that two requests at once cannot both get the
same name. Answers wait until everything they rest on is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage

PRODUCER_ID_BLOCK = 1000
"""Producer ids that a broker takes with one entry; ids that it did not give out are lost when it stops."""

Decision = Callable[[ClusterImage], Command | None]
"""Decides on an image which command a request needs; None: nothing has to change. Pure."""

Watcher = Callable[[ClusterImage, ClusterImage], None]
"""Called on the event loop with the image before and the image now; must be fast and must not raise."""


class Change(NamedTuple):
    """The result of a request."""

    image: ClusterImage
    """The image right after it."""
    command: Command | None
    """None: nothing had to change."""


class Controller(Protocol):
    """The metadata of the cluster, as the rest of the broker uses it."""

    @property
    def image(self) -> ClusterImage:
        """The newest committed image that this broker knows."""

    @property
    def leader(self) -> int | None:
        """The broker that is the controller; None: none is known."""

    @property
    def voters(self) -> tuple[int, ...]:
        """The brokers of the metadata quorum."""

    async def change(self, decision: Decision) -> Change:
        """Commits what `decision` makes of the image, if this broker is the controller.

        What `decision` raises is raised here. Raises `NotController` (another broker is),
        `DiskFull`, `ResourceExhausted`, `Stopping`, `Unavailable` (all definite), `TimedOut`
        and `StorageFailed` (indefinite).
        """

    async def propose(self, commands: Sequence[Command]) -> ClusterImage:
        """Commits commands that need no decision; the image right after the last. Raises like `change`."""

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Calls `watcher` for every change from now on; returns a function that ends this."""

    async def allocate_producer_id(self) -> int:
        """An id that was never given out before (R8), on any broker. Raises like `change`."""

    async def newest(self) -> ClusterImage:
        """The image here, once it has everything that was committed when this was called (M5).

        Raises what a request to the controller raises; nothing is changed by it.
        """

    async def close(self) -> None:
        """Refuses new changes, waits for pending ones, closes the log."""
