"""How far followers are behind their leader, and the states of replicas that have no log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tidelog.model.descriptions import (
    ReplicaDescription,
)

LOST_STATES: Final = ("quarantined", "uncreated", "halted")
"""States of a replica without a usable log: it can be neither written nor read."""

UNREACHABLE: Final = "unreachable"
"""State of a replica whose broker did not answer."""


def with_lag(replicas: Iterable[ReplicaDescription]) -> list[ReplicaDescription]:
    """The replicas in order, each with its lag behind the leader."""
    found = sorted(replicas, key=lambda one: (one.name, one.partition, one.broker_id))
    ends: dict[tuple[bytes, int], tuple[int, int]] = {}
    for one in found:
        key = (one.stream_id, one.partition)
        if one.leader:
            # If two replicas believe that they lead, the one with the later epoch does.
            ends[key] = max(ends.get(key, (0, 0)), (one.leader_epoch, one.log_end_offset))
    lagging = []
    for one in found:
        end = ends.get((one.stream_id, one.partition))
        known = end is not None and one.state not in (*LOST_STATES, UNREACHABLE)
        # Leader and follower answered at different moments, so a follower may seem to be ahead.
        lagging.append(replace(one, lag=max(0, end[1] - one.log_end_offset)) if known and end else one)
    return lagging
