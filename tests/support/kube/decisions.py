"""Plans of single Streams, for tests: the Stream `orders`, its claim, and the decision about it."""

from __future__ import annotations

from support.kube.situations import CLUSTER, Brokers
from tidelog_operator.model import ObjectKey, StreamObject
from tidelog_operator.plan.streams import Decision, plan_streams

KEY = ObjectKey("shop", "orders")


CLAIM = "kubernetes:shop/orders/uid-of-orders"


def decided(one: StreamObject, brokers: Brokers, *others: StreamObject) -> Decision:
    found = {each.object.key: each for each in plan_streams([one, *others], CLUSTER, brokers.view())}
    return found[one.key]


def kinds(decision: Decision) -> list[type]:
    return [type(action) for action in decision.actions]
