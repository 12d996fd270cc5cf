"""Which brokers hold which partitions, and who should lead them: pure decisions.

Used by brokers when streams are created, grow or move, and by whoever plans moves. In order
of weight: the replicas of a partition lie in as many racks as there are, and evenly
among them; every broker carries a like number of replicas; every broker leads a like
number of partitions. What decides between equals is bytes, then the broker's id, so the
same question always gets the same answer.

What does not belong here: which brokers may get replicas, and how replicas get there.

- `loads` a broker and what it carries
- `new`   replicas of new partitions
- `moves` replicas that have to move, or should
- `resizing` more copies, or fewer
"""

from tidelog.placement.loads import BrokerLoad
from tidelog.placement.moves import drain, reassign
from tidelog.placement.new import place
from tidelog.placement.resizing import resize

__all__ = ["BrokerLoad", "drain", "place", "reassign", "resize"]
