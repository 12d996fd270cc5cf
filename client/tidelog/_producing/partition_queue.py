"""The state that a producer keeps for one partition.

`RecordAccumulator` fills and seals the open batch, `Sender` delivers the sealed ones. What may be
sent, and what an answer means, is decided by the partition's `SendWindow`.
"""

from __future__ import annotations

import asyncio

from tidelog._producing.batching import OpenBatch
from tidelog._producing.send_window import SendWindow
from tidelog._producing.stream import ProduceStream


class PartitionQueue:
    """One partition: its open batch, its send window, and the call that carries its batches."""

    __slots__ = (
        "expiry",
        "linger",
        "may_redirect",
        "open",
        "partition",
        "recovering",
        "redirected",
        "ripe",
        "stream",
        "window",
    )

    def __init__(self, window: SendWindow) -> None:
        self.partition = window.partition
        self.window = window
        """The sealed batches without an answer."""
        self.open: OpenBatch | None = None
        """The batch that takes records now; None: there is none."""
        self.linger: asyncio.TimerHandle | asyncio.Handle | None = None
        """Seals the open batch, or makes it ripe."""
        self.ripe = False
        """The open batch has lingered; it is sealed as soon as the window has room."""
        self.stream: ProduceStream | None = None
        """The call to the partition's leader; None: no leader was reached yet, or the call has ended."""
        self.recovering = False
        """A task looks for the leader, to release the held window."""
        self.redirected = False
        """The broker that refused a batch has named the leader: the next attempt goes there at once."""
        self.may_redirect = True
        """False after a redirection, until there was a pause: two brokers may each take the other for the
        leader."""
        self.expiry: asyncio.TimerHandle | None = None
        """Fails the batches that are past their deadline."""

    def __repr__(self) -> str:
        records = len(self.open.values) if self.open is not None else 0
        address = self.stream.address if self.stream is not None else "none"
        return f"<PartitionQueue {self.partition} open={records} leader={address} {self.window!r}>"
