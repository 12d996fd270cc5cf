"""A stream's replication factor: the copies that every one of its partitions has now and will have.

A stream is created with it; after that it follows from the replicas, which move by
`reassignment`. Counted are the replicas from before a move and those after it, whichever are
fewer, and of all partitions the one with fewest. So the minimum that R3 counts against,
min(`min_insync_replicas`, replication factor), rises only when the last partition has its
new copies, and no writer is refused because copies are on their way. It falls in the entry that
begins to take copies away, because their end is awaited with the ISR at its minimum.

That the minimum changes with the replicas, in one entry, keeps R6: what ends with a lower
minimum ends in that entry (`eligibility.reconfigured`), and who left an ISR under the old
minimum does not become eligible by the new one. `apply` calls this, nobody else.
"""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from tidelog_broker.core.metadata import eligibility
from tidelog_broker.core.metadata.image import PartitionImage, StreamImage


def copies_of(partition: PartitionImage) -> int:
    """As many as it has before a move and after it."""
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
