"""Words between replicas come out of a frame as they went in, and anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.core.replication.messages import (
    Batches,
    Diverged,
    Durable,
    LeaderOffsets,
    Position,
    RangeHeld,
    RangeWanted,
    Refusal,
    Refused,
    StartOver,
)
from tidelog_broker.peers.errors import ProtocolBroken
from tidelog_broker.replication.wire import Address, encode, from_follower, from_leader

ADDRESS = Address(bytes(range(16)), 7, 3)
NOTHING = memoryview(b"")


@pytest.mark.parametrize(
    "message",
    [
        Position(5, 10, 4, 9, 2),
        Position(1, 0, None, 0, 0, 7, fsync=False),
        Durable(5, 9, 2),
        Durable(5, 9, 2, 7, fsync=False),
    ],
)
def test_a_followers_words(message: Position | Durable) -> None:
    assert from_follower(encode(ADDRESS, message), NOTHING) == (ADDRESS, message)
    with pytest.raises(ProtocolBroken):
        from_leader(encode(ADDRESS, message), NOTHING)


@pytest.mark.parametrize(
    ("message", "then", "bytes_then"),
    [
        (
            Position(5, 10, 4, 9, 2, 0, fsync=False),
            Position(5, 10, 4, 9, 2),
            "930093c410000102030405060708090a0b0c0d0e0f070395050a040902",
        ),
        (
            Durable(5, 9, 2, 0, fsync=False),
            Durable(5, 9, 2),
            "930193c410000102030405060708090a0b0c0d0e0f070393050902",
        ),
        (
            StartOver(5, 2, unclean=False, epoch_before=4),
            StartOver(5, 2, unclean=False),
            "930593c410000102030405060708090a0b0c0d0e0f0703930502c2",
        ),
    ],
)
def test_below_the_feature_level_words_are_those_that_earlier_software_knows(
    message: Position | Durable | StartOver, then: Position | Durable | StartOver, bytes_then: str
) -> None:
    assert encode(ADDRESS, message, feature_level=1).hex() == bytes_then
    read = from_leader if isinstance(message, StartOver) else from_follower
    assert read(bytes.fromhex(bytes_then), NOTHING) == (ADDRESS, then)


@pytest.mark.parametrize(
    "message",
    [
        LeaderOffsets(5, 9, 2),
        LeaderOffsets(5, 9, 2, ((3, 4), (5, 9))),
        Diverged(5, 3, 7, unclean=True),
        StartOver(5, 2, unclean=False),
        StartOver(5, 2, unclean=True, epoch_before=4),
        *(Refused(refusal, 6) for refusal in Refusal),
    ],
)
def test_a_leaders_words(message: LeaderOffsets | Diverged | StartOver | Refused) -> None:
    assert from_leader(encode(ADDRESS, message), NOTHING) == (ADDRESS, message)
    with pytest.raises(ProtocolBroken):
        from_follower(encode(ADDRESS, message), NOTHING)


def test_batches_are_the_payload_and_not_copied() -> None:
    data = memoryview(b"whole batches")

    address, message = from_leader(encode(ADDRESS, Batches(5, 9, 2, 10, b"left out", ((5, 10),))), data)

    assert address == ADDRESS
    assert isinstance(message, Batches)
    assert message == Batches(5, 9, 2, 10, data, ((5, 10),))
    assert message.data is data


def test_words_of_damaged_ranges_are_said_by_both_ends() -> None:
    data = memoryview(b"whole batches")

    for read in (from_follower, from_leader):
        assert read(encode(ADDRESS, RangeWanted(5, 2, 9)), NOTHING) == (ADDRESS, RangeWanted(5, 2, 9))
        _, held = read(encode(ADDRESS, RangeHeld(5, 2, b"left out")), data)
        assert isinstance(held, RangeHeld)
        assert held == RangeHeld(5, 2, data)
        assert held.data is data


@given(st.binary(max_size=60))
def test_bytes_that_are_no_words_are_refused_and_nothing_else_happens(data: bytes) -> None:
    for read in (from_follower, from_leader):
        try:
            address, _ = read(data, NOTHING)
        except ProtocolBroken:
            continue
        assert len(address.stream_id) == 16
