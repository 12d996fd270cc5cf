"""Where replicas should lie: even, on the brokers that are named, with what is on its way counted."""

from __future__ import annotations

from collections import Counter

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster
from tidelog.errors import InvalidRequest
from tidelog_broker.core.metadata.commands import ChangeBroker, Command, UnregisterBroker
from tidelog_broker.core.metadata.decisions import reassignment, spreading
from tidelog_broker.core.metadata.image import ClusterImage


def cluster(*commands: Command, brokers: int = 5) -> ClusterImage:
    streams = [created(number, replicas=(0, 1, 2), partitions=5) for number in (1, 2)]
    return applied(quorum_cluster(brokers), [*streams, *commands])


def spread(
    image: ClusterImage, brokers: list[int] | None = None, moves_max: int | None = None
) -> ClusterImage:
    """After the reassignment, as if it had ended."""
    targets = spreading.spread(image, list(image.streams.values()), brokers, moves_max=moves_max)
    command = reassignment.reassign_all(image, targets)
    return applied(image, [command] if command else [])


def held(image: ClusterImage) -> Counter[int]:
    return Counter(
        broker
        for stream in image.streams.values()
        for partition in stream.partitions
        for broker in partition.target
    )


def test_replicas_spread_over_brokers_that_were_added() -> None:
    assert held(spread(cluster())) == dict.fromkeys(range(5), 6)


def test_only_over_the_brokers_that_are_named() -> None:
    assert held(spread(cluster(), [1, 2, 3, 4])) == {1: 8, 2: 8, 3: 7, 4: 7}


def test_no_more_replicas_move_than_may() -> None:
    moved = sum(held(spread(cluster(), moves_max=3))[broker] for broker in (3, 4))

    assert moved == 3


def test_only_the_partitions_of_the_streams_that_are_named_move() -> None:
    image = cluster()

    targets = spreading.spread(image, [image.streams[identifier(1)]])

    assert {stream_id for stream_id, _ in targets} == {identifier(1)}


def test_what_lies_even_does_not_move_again() -> None:
    image = spread(cluster())

    assert spreading.spread(image, list(image.streams.values())) == {}


def test_replicas_of_a_broker_that_is_gone_for_good_get_another_place() -> None:
    image = spread(cluster(UnregisterBroker(2)), [0, 1, 3, 4])

    assert held(image)[2] == 0


def test_cordoned_brokers_are_left_out_unless_they_are_named_which_is_refused() -> None:
    image = cluster(ChangeBroker(4, cordoned=True))

    assert held(spread(image))[4] == 0
    with pytest.raises(InvalidRequest, match="broker 4 is cordoned and gets no new replicas"):
        spreading.spread(image, [], [4])


def test_nonsense_is_refused_with_a_sentence() -> None:
    image = cluster()
    streams = list(image.streams.values())

    with pytest.raises(InvalidRequest, match="broker 9 is not registered"):
        spreading.spread(image, streams, [0, 9])
    with pytest.raises(InvalidRequest, match="3 replicas need 3 brokers"):
        spreading.spread(image, streams, [0, 1])
    everybody = [ChangeBroker(broker, cordoned=True) for broker in range(5)]
    with pytest.raises(InvalidRequest, match="no broker may get replicas now"):
        spreading.spread(cluster(*everybody), streams)


def test_more_partitions_than_one_entry_begins_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignment, "MOVES_MAX", 3)

    with pytest.raises(InvalidRequest, match="would begin to move at once, but at most 3 may"):
        spread(cluster())
