"""What an image says of brokers and partitions to those who run the cluster."""

from __future__ import annotations

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster
from tidelog.model import BrokerStanding
from tidelog_broker.core.metadata.commands import ChangeBroker, ChangePartitions, Command, PartitionChange
from tidelog_broker.core.metadata.controller import upkeep
from tidelog_broker.core.metadata.decisions import reassignment, standing
from tidelog_broker.core.metadata.image import ClusterImage, Vote

S = identifier(1)


def cluster(*commands: Command) -> ClusterImage:
    streams = [created(1, "b", replicas=(0, 1, 2)), created(2, "a", replicas=(2,), partitions=2)]
    return applied(quorum_cluster(4), [*streams, *commands])


def test_a_healthy_cluster_has_nothing_in_trouble() -> None:
    found = standing.cluster_standing(cluster(), (0, 1, 2))

    assert found.standings[2] == BrokerStanding(2, "active", voter=True, replicas=3, leaders=2, version=4)
    assert found.standings[3] == BrokerStanding(3, "active", version=5)
    assert (found.under_replicated, found.leaderless, found.below_minimum, found.reassigning) == (0,) * 4
    assert found.troubled == ()


def test_what_a_lost_broker_held_is_in_trouble_by_name() -> None:
    image = cluster()
    found = standing.cluster_standing(applied(image, [upkeep.fence(image, 2)]), (0, 1, 2))

    assert [one.label for one in found.troubled] == ["a/0", "a/1", "b/0"]
    assert (found.under_replicated, found.leaderless, found.below_minimum) == (3, 2, 2)
    assert found.standings[2] == BrokerStanding(2, "fenced", voter=True, replicas=3, out_of_sync=3, version=4)
    assert found.troubled[2].partition.lagging == (2,)
    assert found.troubled[2].min_insync == 2


def test_a_replica_that_a_reassignment_brings_is_no_trouble_and_a_drain_is_shown() -> None:
    image = cluster()
    drain = reassignment.drain(image, 2)
    assert drain is not None
    begun = applied(image, [drain])

    found = standing.cluster_standing(begun, (0, 1, 2))

    assert [one.state for one in found.standings] == ["active", "active", "draining", "active"]
    assert (found.under_replicated, found.reassigning, found.troubled) == (0, 3, ())
    everything_is_there = [
        PartitionChange(stream.id, number, isr=partition.replicas)
        for stream in begun.streams.values()
        for number, partition in enumerate(stream.partitions)
    ]
    arrived = applied(begun, [ChangePartitions(tuple(everything_is_there))])
    ended = [
        change
        for stream in arrived.streams.values()
        for number, partition in enumerate(stream.partitions)
        if (change := reassignment.finished(arrived, stream, number, partition)) is not None
    ]
    done = standing.cluster_standing(applied(arrived, [ChangePartitions(tuple(ended))]), (0, 1, 2))
    assert done.standings[2] == BrokerStanding(2, "cordoned", cordoned=True, voter=True, version=8)


def test_what_was_said_of_a_vote_is_shown() -> None:
    found = standing.cluster_standing(cluster(ChangeBroker(1, vote=Vote.UNWANTED)), (0, 2, 3))

    assert found.standings[1] == BrokerStanding(1, "active", vote="unwanted", replicas=1, version=8)


def test_only_so_many_in_trouble_are_named_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "TROUBLED_SHOWN_MAX", 1)
    image = cluster()

    found = standing.cluster_standing(applied(image, [upkeep.fence(image, 2)]), ())

    assert ([one.label for one in found.troubled], found.under_replicated) == (["a/0"], 3)
