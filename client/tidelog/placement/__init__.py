"""The choice of brokers and preferred leaders for partitions: pure functions.

Brokers use it when streams are created, grow or move; the operator uses it to plan moves. The replicas of
a partition are spread evenly over as many racks as possible; this rule comes first. Then every broker
should hold about the same number of replicas and bytes, and be the preferred leader of about the same
number of partitions: the smaller `evenness.cost`, the better. Replicas and bytes have the same weight, each
relative to the average broker. Existing replicas move only if it is worth it (`evenness.worth`). Leaders
never make replicas move: a new order of the same replicas evens them out. Among equal choices the lowest id
wins, so the same input always has the same result.

What does not belong here: which brokers may get replicas, and how replicas are moved.

- `loads`    the load of a broker
- `evenness` how even the load is, and what a move is worth
- `new`      replicas of new partitions
- `moves`    replicas that must move, or should; `evening` finds those that should
- `leaders`  the preferred leaders among the replicas
- `resizing` more or fewer replicas
"""

from tidelog.placement.evenness import cost
from tidelog.placement.leaders import prefer
from tidelog.placement.loads import BrokerLoad
from tidelog.placement.moves import drain, reassign
from tidelog.placement.new import place
from tidelog.placement.resizing import resize

__all__ = ["BrokerLoad", "cost", "drain", "place", "prefer", "reassign", "resize"]
