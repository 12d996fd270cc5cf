"""R3: everything below the high watermark is committed.

The high watermark is the smallest durable log end offset over the leader and the *maximal* ISR: the
committed ISR united with members that are about to join, because either set may decide
the next election. It does not move while the committed ISR is below the effective minimum,
and it never goes back.
"""

from __future__ import annotations

from collections.abc import Collection


def high_watermark(
    current: int,
    *,
    leader_durable: int,
    maximal_isr_durable: Collection[int],
    committed_isr_size: int,
    min_insync_effective: int,
) -> int:
    """The high watermark after `current`.

    `leader_durable` is the leader's own durable log end offset (of a `page-cache` stream:
    what is written), `maximal_isr_durable` are those of the other members of the maximal ISR,
    as acknowledged in the leader's epoch; a member that has not acknowledged in it yet
    counts as 0. `committed_isr_size` includes the leader; a pending expansion does not
    count, and a pending removal counts as removed. `min_insync_effective` is min(configured,
    replication factor).
    """
    if committed_isr_size < min_insync_effective:
        return current
    return max(current, min((leader_durable, *maximal_isr_durable)))
