"""Shares a limit among partitions with unread offsets, so that none of them waits without end. Pure.

The rule, for one trigger with a limit that is smaller than what is unread:

1. The shares add up to the limit exactly, and no share is larger than its partition's unread part.
2. A tenth of the limit, at least 1, is the reserve. It is shared equally: each partition gets the same
   amount, or everything that it has. What cannot be divided goes out in single units around the ring of all
   partitions, from a place that moves on by the whole reserve with each turn.
3. The rest of the limit is shared in proportion to what is unread after 2, the largest remainders first.

So each of N partitions with something unread gets a share within ⌈N / reserve⌉ turns, and in each turn if
the reserve is N or more. A partition of the fraction f of everything unread gets at least
f × (limit − reserve) − 1. Kafka's connector shares in proportion alone: there 5 records beside 10 million
wait until the others are read, or each small share is rounded up and the sum exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

RESERVE_PARTS: Final = 10
"""The reserve is one of so many parts of the limit."""

K = TypeVar("K")


def reserve_of(limit: int) -> int:
    """The part of the limit that is shared equally."""
    return max(1, limit // RESERVE_PARTS)


def share_out(sizes: Mapping[K, int], limit: int, turn: int) -> dict[K, int]:
    """The share of each partition in one trigger.

    `sizes`: what is unread, in the same order in every turn. `turn` grows by 1 with each trigger.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    reserve = reserve_of(limit)
    equal = _equally(sizes, reserve, turn * reserve)
    left = {key: size - equal[key] for key, size in sizes.items()}
    rest = _in_proportion(left, limit - reserve)
    return {key: equal[key] + rest[key] for key in sizes}


def _equally(sizes: Mapping[K, int], amount: int, place: int) -> dict[K, int]:
    """Equal shares of `amount`, which is not more than the sum of the sizes."""
    level, left, waiting = 0, amount, sorted(size for size in sizes.values() if size)
    for done, size in enumerate(waiting):
        step = min(size - level, left // (len(waiting) - done))
        level += step
        left -= step * (len(waiting) - done)
        if level < size:
            break
    shares = {key: min(size, level) for key, size in sizes.items()}
    keys = list(sizes)
    first = place % len(keys)
    for key in keys[first:] + keys[:first]:
        if left == 0:
            break
        if sizes[key] > level:
            shares[key] += 1
            left -= 1
    return shares


def _in_proportion(sizes: Mapping[K, int], amount: int) -> dict[K, int]:
    """Shares of `amount` in proportion to the sizes, whose sum is not smaller."""
    total = sum(sizes.values())
    shares: dict[K, int] = {}
    remainders: dict[K, int] = {}
    for key, size in sizes.items():
        shares[key], remainders[key] = divmod(size * amount, max(1, total))
    left = amount - sum(shares.values())
    # Sorting is stable: of equal remainders the first in the given order gets the unit.
    for key in sorted(remainders, key=lambda key: -remainders[key])[:left]:
        shares[key] += 1
    return shares
