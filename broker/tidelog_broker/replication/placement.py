"""Converts a partition's entry in the image to the form that `core.replication` uses."""

from __future__ import annotations

from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.core.replication.membership import Placement, ReplicaBroker


def placement_of(image: ClusterImage, stream: StreamImage, placed: PartitionImage) -> Placement:
    brokers = {}
    for broker in placed.replicas:
        known, assignment = image.brokers.get(broker), placed.assignment_of(broker)
        brokers[broker] = (
            ReplicaBroker(b"", False, assignment)
            if known is None
            else ReplicaBroker(known.incarnation, known.may_join, assignment)
        )
    return Placement(
        placed.replicas, placed.isr, placed.partition_epoch, stream.config.min_insync_effective, brokers
    )
