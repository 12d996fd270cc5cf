"""A stream's replication factor: the number of replicas that every partition has, now and after its move.

A stream is created with it; later it follows from the replicas, which move by
`decisions.reassignment`. Of each partition the smaller number of replicas before and after a move counts,
and of all partitions the smallest number. So the minimum of R3,
min(`min_insync_replicas`, replication factor), rises only when the last partition has its
new replicas, and no write is refused because replicas are being added. It falls in the entry that
begins to remove replicas, because the ISR may be at its minimum until the removal ends.

The minimum changes with the replicas in one entry, which keeps R6: eligibility that ends with a lower
minimum ends in that entry (`eligibility.reconfigured`), and a member that left an ISR under the old
minimum does not become eligible by the new one. Only `apply` calls this module.
"""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from tidelog_broker.core.metadata import eligibility
from tidelog_broker.core.metadata.image import PartitionImage, StreamImage


def copies_of(partition: PartitionImage) -> int:
    """The smaller number of replicas before and after a move."""
    return min(len(partition.origin), len(partition.target))


def with_factor(stream: StreamImage) -> StreamImage:
    """The stream after replicas of its partitions changed."""
    factor = min(copies_of(partition) for partition in stream.partitions)
    if factor == stream.config.replication_factor:
        return stream
    after = replace(stream, config=dataclasses.replace(stream.config, replication_factor=factor))
    return replace(
        after,
        partitions=tuple(eligibility.reconfigured(after, partition) for partition in stream.partitions),
    )
