"""The state machine that the metadata log is applied to, as the driver sees it.

Neighbours: `driver` calls it, `quorum_controller` implements it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog_broker.errors import StorageFailure
from tidelog_broker.model import Entry, Snapshot


class Machine(Protocol):
    """Committed entries are applied to it. All calls come on the event loop; none may block."""

    def apply(self, entries: Sequence[Entry]) -> None:
        """Applies committed entries, in order, each once."""

    def restore(self, snapshot: Snapshot) -> None:
        """The leader's image replaces everything that was applied."""

    def encoder(self) -> Callable[[], bytes]:
        """Returns a function that encodes what is applied now; the thread calls it."""

    def ticked(self) -> None:
        """A tick has passed."""

    def changed(self) -> None:
        """Role, term, leader, voters or what is applied may have changed."""

    def withdrawn(self, saved_index: int, error: OSError) -> None:
        """No broker has the entries behind `saved_index`, and none will ever have them."""

    def failed(self, error: StorageFailure) -> None:
        """What is on the disk is unknown; the broker must end."""

    def forgotten(self, reason: str) -> None:
        """The log lacks entries that it acknowledged; the broker must end."""
