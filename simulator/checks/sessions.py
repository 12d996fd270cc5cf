"""Checks of heartbeats: a broker says that its controller answers only if the controller does (M3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.checks.truth import Knowledge, Setup, require
from tidelog_broker.core.metadata.controller.liveness import SESSION_MS

if TYPE_CHECKING:
    from simulator.node import Node
    from tidelog_broker.membership.wire import Heartbeat

UNANSWERED_US_MAX: Final = SESSION_MS * 1500
"""After so long without an answer, no heartbeat may say that the controller answers: a session, and half of
one, in which a heartbeat may be repeated unchanged."""


class SessionChecks(Knowledge):
    """Compares heartbeats with the answers that were sent."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._answered: dict[int, int] = {}
        """By broker: the last time when a controller sent it an answer, or it became or ceased to be the
        controller."""

    def answered(self, broker: int) -> None:
        self._answered[broker] = self.now_us()

    def beats(self, node: Node, beat: Heartbeat) -> None:
        """A broker sends a heartbeat."""
        if beat.unanswered:
            self.mark("M3 unanswered")
            return
        process = node.process
        assert process is not None, "it sends a heartbeat"
        since = max(self._answered.get(node.id, 0), process.loop.stalled_until)
        unanswered = self.now_us() - since
        require(
            unanswered <= UNANSWERED_US_MAX,
            "M3",
            f"broker {node.id} says in a heartbeat that its controller answers; the last answer was sent "
            f"{unanswered} µs ago",
        )
