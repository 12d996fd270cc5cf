"""How far a peer's log is, as its leader knows it (after etcd's tracker).

Three modes of sending: *probe* (the leader does not know where the logs agree: it sends one
message and waits for the answer), *replicate* (it sends without waiting, up to a bound),
*snapshot* (the entries that the peer lacks are compacted away: it waits until the peer has the image).
"""

from __future__ import annotations

from collections import deque
from enum import Enum

INFLIGHT_MESSAGES_MAX = 64
"""Appends sent to a peer and not answered yet."""

SNAPSHOT_PATIENCE = 10
"""Election timeouts after which an image that a peer did not confirm is sent again."""


class Mode(Enum):
    """How a leader sends to one peer."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    """The leader's view of one peer."""

    __slots__ = (
        "heard",
        "inflight",
        "match",
        "mode",
        "next",
        "probe_sent",
        "round",
        "snapshot_index",
        "waits",
    )

    def __init__(self, next_index: int) -> None:
        self.match = 0
        """Everything up to here is on the peer's disk."""
        self.next = next_index
        """The next entry to send."""
        self.mode = Mode.PROBE
        self.probe_sent = False
        """A probe is on its way: nothing more is sent until it, or the next heartbeat, is answered."""
        self.waits = 0
        """In snapshot mode: election timeouts that have passed."""
        self.snapshot_index = 0
        """In snapshot mode: the index of the image that was sent."""
        self.inflight: deque[int] = deque()
        """Last index of each append that is not answered yet."""
        self.heard = True
        """The peer answered since the leader's last check (check-quorum)."""
        self.round = 0
        """The newest heartbeat round that the peer answered."""

    def __repr__(self) -> str:
        return (
            f"<Progress {self.mode.value} match={self.match} next={self.next} inflight={len(self.inflight)}>"
        )

    @property
    def paused(self) -> bool:
        """Nothing more may be sent now."""
        match self.mode:
            case Mode.PROBE:
                return self.probe_sent
            case Mode.REPLICATE:
                return len(self.inflight) >= INFLIGHT_MESSAGES_MAX
            case Mode.SNAPSHOT:
                return True

    def sent(self, last_index: int, *, empty: bool) -> None:
        """An append up to `last_index` is on its way."""
        if self.mode is Mode.PROBE:
            self.probe_sent = True
        elif not empty:
            self.next = last_index + 1
            self.inflight.append(last_index)

    def acknowledged(self, index: int) -> bool:
        """The peer has everything up to `index`; returns whether that is more than before."""
        while self.inflight and self.inflight[0] <= index:
            self.inflight.popleft()
        news = index > self.match
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        self.probe_sent = False
        if self.mode is Mode.PROBE or (self.mode is Mode.SNAPSHOT and self.match >= self.snapshot_index):
            self._become(Mode.REPLICATE)
        return news

    def rejected(self, index: int, hint: int) -> bool:
        """The entry at `index` is not the same there; the logs may agree at `hint`. False: an old answer."""
        if self.mode is Mode.SNAPSHOT:
            return False
        if self.mode is Mode.REPLICATE:
            if index <= self.match:
                return False
            self.next = self.match + 1
            self._become(Mode.PROBE)
            return True
        if self.next - 1 != index:
            return False
        # At least one step back, so that probing ends; never into what the peer is known to have.
        self.next = max(min(index, hint + 1), self.match + 1)
        self.probe_sent = False
        return True

    def alive(self) -> None:
        """The peer answered a heartbeat: a probe may be sent again, and one more append."""
        self.probe_sent = False
        if self.mode is Mode.REPLICATE and len(self.inflight) >= INFLIGHT_MESSAGES_MAX:
            self.inflight.popleft()

    def waited(self) -> None:
        """An election timeout passed; an image that was not confirmed may be lost."""
        if self.mode is Mode.SNAPSHOT:
            self.waits += 1
            if self.waits >= SNAPSHOT_PATIENCE:
                self.lost()

    def begin_snapshot(self, index: int) -> None:
        self._become(Mode.SNAPSHOT)
        self.snapshot_index = index

    def lost(self) -> None:
        """The connection broke: messages on their way may not arrive."""
        self.next = self.match + 1
        self._become(Mode.PROBE)

    def _become(self, mode: Mode) -> None:
        self.mode = mode
        self.probe_sent = False
        self.inflight.clear()
        self.snapshot_index = 0
        self.waits = 0
