"""Checks of what a broker says of its own session: that it is answered, only if it is (M3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.checks.truth import Knowledge, Setup, require
from tidelog_broker.core.metadata.controller.liveness import SESSION_MS

if TYPE_CHECKING:
    from simulator.node import Node
    from tidelog_broker.membership.wire import Heartbeat

UNANSWERED_US_MAX: Final = SESSION_MS * 1500
"""After so long without an answer no heartbeat says that there was one: a session, and the half of one for
which a heartbeat is sent again as it is."""


class SessionChecks(Knowledge):
    """See the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._answered: dict[int, int] = {}
        """By broker: when a controller sent it an answer last, or it was the controller itself."""

    def answered(self, broker: int) -> None:
        self._answered[broker] = self.now_us()

    def beats(self, node: Node, beat: Heartbeat) -> None:
        """A broker sends a heartbeat."""
        if beat.unanswered:
            self.mark("M3 unanswered")
            return
        process = node.process
        assert process is not None, "it speaks"
        since = max(self._answered.get(node.id, 0), process.loop.stalled_until)
        unanswered = self.now_us() - since
        require(
            unanswered <= UNANSWERED_US_MAX,
            "M3",
            f"broker {node.id} says that its controller answers; it has not for {unanswered} µs",
        )
