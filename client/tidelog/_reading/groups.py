"""The partitions of a reader that share a call, with their failures and their leaders.

`FetchCalls` (`calls`) makes the calls and decides when a group is split.
"""

from __future__ import annotations

from tidelog._reading.fetching import FetchState
from tidelog._reading.start_and_end import Places
from tidelog.errors import NotLeader, TidelogError


class Group:
    """Partitions that are read by one call, and the failures of the calls so far."""

    __slots__ = ("address", "error", "failing_since", "failures", "partitions", "redirected", "silence_s")

    def __init__(self, partitions: list[FetchState], silence_s: float) -> None:
        self.partitions = partitions
        self.failures = 0
        """The number of failures since the last answer about the log. After a failure the next attempt waits,
        and asks for the leaders again."""
        self.error: TidelogError | None = None
        """The last failure."""
        self.redirected = False
        """The broker that refused has named the leader: the next attempt goes there at once."""
        self.failing_since = 0.0
        """The time of the first of these failures, on the event loop's clock."""
        self.address = ""
        """The address of the last call."""
        self.silence_s = silence_s
        """The time that this broker may be silent. Seconds."""


def split_by_leader(
    partitions: list[FetchState], places: Places
) -> tuple[dict[str, list[FetchState]], list[FetchState], NotLeader | None]:
    """The partitions by their leaders' addresses, those without a leader, and the error for these."""
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
