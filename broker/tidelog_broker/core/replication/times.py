"""The times and bounds of replication (docs/replication.md, *Times and bounds*)."""

from __future__ import annotations

from typing import NamedTuple


class ReplicationTimes(NamedTuple):
    """The times and bounds that a leader applies."""

    replica_lag_max_ms: int = 10_000
    """A member that has not been caught up for this time leaves the ISR (R4)."""
    peer_silence_max_ms: int = 500
    """A member whose connection is lost for this time leaves the ISR (R4)."""
    expand_gap_max_bytes: int = 4 << 20
    """The high watermark waits for a follower that is at most this far behind (R4) …"""
    expand_hold_max_ms: int = 50
    """… for at most this time,"""
    expand_pause_ms: int = 1_000
    """and not again before this time has passed."""
    proposal_repeat_ms: int = 500
    """If the image does not decide a proposal within this time, the leader proposes again."""


DEFAULT_TIMES = ReplicationTimes()

RETRY_MS = 50
"""A follower that was refused because its image or the leader's is old fetches again after this time."""

RETRY_FAILED_MS = 1_000
"""A follower fetches again after this time when the leader could not read, or its own write failed."""
