"""Which brokers hold which partitions, and who should lead them: pure decisions.

Used by brokers when streams are created, grow or move, and by whoever plans moves. The replicas
of a partition lie in as many racks as there are, and evenly among them; nothing outweighs that.
Then every broker carries a like number of copies and of bytes, and is the preferred leader of a
like number of partitions: the less `evenness.cost` is, the better. Copies and bytes weigh the
same, each as a part of what an average broker carries. What is there moves only where that is
worth it (`evenness.worth`), and leaders never make copies move: another order of the same
replicas evens them out. Between equals the lowest id decides, so the same question always gets
the same answer.

What does not belong here: which brokers may get replicas, and how replicas get there.

- `loads`    a broker and what it carries
- `evenness` how even that is, and what a move is worth
- `new`      replicas of new partitions
- `moves`    replicas that have to move, or should; `evening` finds the latter
- `leaders`  the preferred leaders among the replicas
- `resizing` more copies, or fewer
"""

from tidelog.placement.evenness import cost
from tidelog.placement.leaders import prefer
from tidelog.placement.loads import BrokerLoad
from tidelog.placement.moves import drain, reassign
from tidelog.placement.new import place
from tidelog.placement.resizing import resize

__all__ = ["BrokerLoad", "cost", "drain", "place", "prefer", "reassign", "resize"]
