"""Errors for producers when a partition takes no appends, or cannot commit the waiting appends.

Neighbour: `partition` decides when they are raised. The refusal of an append that was not written is
definite. The outcome of a written append is unknown, because another leader may commit it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.errors import (
    NotEnoughReplicas,
    NotLeader,
    ResourceExhausted,
    TidelogError,
    TimedOut,
    Unavailable,
)
from tidelog.wording import count_of


class Refusals(NamedTuple):
    """The answers to appends that wait when this broker can no longer commit them."""

    unwritten: TidelogError
    """For appends that are not in the log: a definite error."""
    written: TidelogError
    """For appends that are in the log: an indefinite error."""


def in_doubt(name: str) -> Refusals:
    """Refusals while this broker leads the partition but cannot know whether it still does."""
    where = f"this broker leads {name} and reaches neither its controller nor its followers"
    return Refusals(
        Unavailable(f"{where}; another broker may lead it by now", retry_after_ms=100),
        TimedOut(f"{where}; the records may be lost, or committed later", retry_after_ms=100),
    )


def deposed(name: str, not_leader: NotLeader) -> Refusals:
    """Refusals when this broker no longer leads the partition."""
    return Refusals(
        not_leader,
        TimedOut(
            f"this broker ceased to lead {name} before it knew of the commit; the records may be in the log",
            retry_after_ms=50,
        ),
    )


def not_leader(name: str, leader: int | None) -> NotLeader:
    """`leader`: the leader in the image; None: there is no leader."""
    facts: dict[str, Any] = {} if leader is None else {"leader": leader}
    return NotLeader(f"this broker does not lead {name}", retry_after_ms=50, **facts)


def queue_full(name: str, queued_bytes: int, bytes_max: int) -> ResourceExhausted:
    return ResourceExhausted(
        f"{queued_bytes} bytes wait to be written to {name}, and at most {bytes_max} may wait; try again",
        retry_after_ms=100,
    )


def too_many_uncommitted(name: str, appends_max: int) -> ResourceExhausted:
    return ResourceExhausted(
        f"{appends_max} appends to {name} wait for their commit, and no more may wait; try again",
        retry_after_ms=100,
    )


def too_few_replicas(name: str, in_sync: int, needed: int) -> NotEnoughReplicas:
    return NotEnoughReplicas(
        f"{name} has {count_of(in_sync, 'replica')} in sync and needs {needed} (min_insync_replicas)",
        retry_after_ms=100,
    )
