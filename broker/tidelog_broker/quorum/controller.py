"""Who changes the cluster's metadata, and tells the others (DESIGN section 6).

`Controller` is what the rest of the broker sees; `quorum_controller` has the one that a
broker runs, for a cluster of any size.

Decisions are made on the image that the command will be applied to, the one after all
changes still on their way to a majority's disks, so that two requests at once cannot both be
right about a name; answers wait until everything they rest on is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage

PRODUCER_ID_BLOCK = 1000
"""Producer ids that a broker takes with one entry; those it has not given out are lost when it stops."""

Decision = Callable[[ClusterImage], Command | None]
"""What a request means for an image: pure (`core.metadata.decide`); None: it is so already."""

Watcher = Callable[[ClusterImage, ClusterImage], None]
"""Told on the event loop, with the image before and the image now; never slow, never raises."""


class Change(NamedTuple):
    """What became of a request."""

    image: ClusterImage
    """Right after it."""
    command: Command | None
    """None: what was asked for was so already."""


class Controller(Protocol):
    """The metadata of the cluster, as the rest of the broker uses it."""

    @property
    def image(self) -> ClusterImage:
        """The newest that is committed, as far as this broker knows."""

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
        """Has `watcher` told of every change from now on; returns what ends that."""

    async def allocate_producer_id(self) -> int:
        """An id that was never given out before (R8), on any broker. Raises like `change`."""

    async def newest(self) -> ClusterImage:
        """The image here, once it has everything that was committed when it was asked (M5).

        Raises what a request to the controller raises; nothing is changed by it.
        """

    async def close(self) -> None:
        """Refuses what comes from now on, waits for what is on its way, closes the log."""
