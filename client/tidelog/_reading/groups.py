"""Partitions of a reader that share a call: how their reading goes, and who leads which of them.

`FetchCalls` (`calls`) makes the calls and decides when a group parts.
"""

from __future__ import annotations

from tidelog._reading.fetching import FetchState
from tidelog._reading.start_and_end import Places
from tidelog.errors import NotLeader, TidelogError


class Group:
    """Partitions that are read by one call, and how that goes."""

    __slots__ = ("address", "error", "failing_since", "failures", "partitions", "redirected", "silence_s")

    def __init__(self, partitions: list[FetchState], silence_s: float) -> None:
        self.partitions = partitions
        self.failures = 0
        """Since something was heard of the log; the next attempt waits, and asks who leads."""
        self.error: TidelogError | None = None
        """The last of them."""
        self.redirected = False
        """The broker that refused has named the leader: ask there, at once."""
        self.failing_since = 0.0
        """When the first of these failures was met; on the event loop's clock."""
        self.address = ""
        """Whom the last call asked."""
        self.silence_s = silence_s
        """How long this broker may say nothing."""


def split_by_leader(
    partitions: list[FetchState], places: Places
) -> tuple[dict[str, list[FetchState]], list[FetchState], NotLeader | None]:
    """The partitions by their leaders' addresses, those without a leader, and how that reads."""
    by_leader: dict[str, list[FetchState]] = {}
    leaderless: list[FetchState] = []
    missing: NotLeader | None = None
    for state in partitions:
        try:
            address = places.leader_address(state.partition)
        except NotLeader as error:
            leaderless.append(state)
            missing = error
        else:
            by_leader.setdefault(address, []).append(state)
    return by_leader, leaderless, missing
