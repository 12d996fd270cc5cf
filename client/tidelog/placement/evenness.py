"""How even the load of brokers is, as a number, and when a change of it is worth making.

Three things count, each as a part of its mean over the brokers: copies, bytes, and preferred
leaderships. The cost is the sum of their squared deviations from the mean. So ten percent too
much on one broker weigh a hundredth, twenty percent four hundredths, and what counts most is
whoever carries most or least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.placement.loads import BrokerLoad

LEAST_WORTH: Final = 1e-12
"""Less is an error of rounding."""


def cost(brokers: Sequence[BrokerLoad]) -> float:
    """0: every broker carries the same. What no broker has any of counts for nothing."""
    return (
        _unevenness([broker.replicas for broker in brokers])
        + _unevenness([broker.bytes for broker in brokers])
        + _unevenness([broker.leaders for broker in brokers])
    )


def worth(here: int, there: int, amount: int, mean: float, slack: float) -> float:
    """Of taking `amount` from a broker with `here` to one with `there`: by how much less it makes the cost,
    less the price of moving it.

    The price is such that nothing is taken between two brokers that are apart by no more than `slack`,
    a part of the mean; and in all cases the more, the more is moved.
    """
    if not mean:
        return 0.0
    return 2 * (amount / mean) * ((here - there - amount) / mean - slack)


def _unevenness(amounts: Sequence[int]) -> float:
    total = sum(amounts)
    return sum((amount * len(amounts) / total - 1) ** 2 for amount in amounts) if total else 0.0
