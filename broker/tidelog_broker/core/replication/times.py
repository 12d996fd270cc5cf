"""The times and bounds of replication (docs/replication.md, *Times and bounds*)."""

from __future__ import annotations

from typing import NamedTuple


class ReplicationTimes(NamedTuple):
    replica_lag_max_ms: int = 10_000
    """A member that was not caught up for so long leaves the ISR (R4)."""
    peer_silence_max_ms: int = 500
    """… and one whose connection is lost for so long."""
    expand_gap_max_bytes: int = 4 << 20
    """A follower that is at most so far behind is waited for (R4)."""
    expand_hold_max_ms: int = 50
    """… for so long,"""
    expand_pause_ms: int = 1_000
    """and then not again for so long."""
    proposal_repeat_ms: int = 500
    """A proposal that the image does not decide is followed by another one."""


DEFAULT_TIMES = ReplicationTimes()

RETRY_MS = 50
"""A follower that was refused because somebody is behind asks again after this."""

RETRY_FAILED_MS = 1_000
"""… because the leader cannot read, or its own disk did not take what came."""
