"""The evenness of the load of brokers as a number, and the worth of a change.

Three numbers count, each relative to its mean over the brokers: replicas, bytes and preferred leaderships.
The cost is the sum of their squared deviations from the mean. So a broker with 10 % too much costs 0.01, a
broker with 20 % too much 0.04: the brokers with the most and the least load count most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.placement.loads import BrokerLoad

LEAST_WORTH: Final = 1e-12
"""A smaller worth is a rounding error."""


def cost(brokers: Sequence[BrokerLoad]) -> float:
    """The unevenness of the loads; 0: all are equal. A number that is 0 everywhere costs nothing."""
    return (
        _unevenness([broker.replicas for broker in brokers])
        + _unevenness([broker.bytes for broker in brokers])
        + _unevenness([broker.leaders for broker in brokers])
    )


def worth(here: int, there: int, amount: int, mean: float, slack: float) -> float:
    """The worth of moving `amount` from a broker with `here` to a broker with `there`.

    It is the decrease of the cost minus the price of the move. The price grows with the amount, and is so
    high that nothing moves between two brokers whose difference is at most `slack`, a fraction of the mean.
    """
    if not mean:
        return 0.0
    return 2 * (amount / mean) * ((here - there - amount) / mean - slack)


def _unevenness(amounts: Sequence[int]) -> float:
    total = sum(amounts)
    return sum((amount * len(amounts) / total - 1) ** 2 for amount in amounts) if total else 0.0
