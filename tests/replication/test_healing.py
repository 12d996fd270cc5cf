"""2c: who may_send_range batches for another replica's damaged range, and who is asked."""

from __future__ import annotations

import pytest

from replication.whole_logs import WholeLog
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.healing import brokers_with_range, may_send_range
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.membership import Placement, ReplicaBroker
from tidelog_broker.core.replication.messages import LeaderOffsets, Position, RangeWanted

EPOCH = 5


def log_of_ten() -> WholeLog:
    log = WholeLog()
    log.append([(4, number) for number in range(10)])
    log.all_durable()
    return log


def leader() -> LeaderPartition:
    brokers = {broker: ReplicaBroker(b"run %d" % broker, True) for broker in (1, 2, 3)}
    placement = Placement((1, 2, 3), (1, 2), 40, 2, brokers)
    made = LeaderPartition(
        1, EPOCH, log_of_ten(), fsync=True, high_watermark=10, placement=placement, now_ms=1000
    )
    made.begin(1000)
    return made


def follower() -> FollowerPartition:
    made = FollowerPartition(2, 1, EPOCH, log_of_ten(), fsync=True, high_watermark=10)
    made.begin()
    return made


def test_a_follower_asks_its_leader_once_its_log_fits() -> None:
    one = follower()
    assert brokers_with_range(one) == []

    one.received(LeaderOffsets(EPOCH, 10, 0))

    assert brokers_with_range(one) == [1]


def test_a_leader_asks_the_members_of_the_isr_whose_logs_fit() -> None:
    one = leader()
    assert brokers_with_range(one) == []

    for broker in (2, 3):
        one.position(broker, b"run %d" % broker, Position(EPOCH, 10, 4, 10, 0), 1010)

    assert brokers_with_range(one) == [2]


@pytest.mark.parametrize(
    "wanted",
    [
        RangeWanted(4, 2, 5),
        RangeWanted(6, 2, 5),
        RangeWanted(5, 5, 5),
        RangeWanted(5, 2, 11),
        RangeWanted(5, -1, 5),
    ],
)
def test_a_question_of_another_epoch_or_of_what_is_not_there_gets_nothing(wanted: RangeWanted) -> None:
    assert not may_send_range(leader(), wanted)


def test_only_who_is_sure_of_its_log_gives() -> None:
    wanted, one = RangeWanted(EPOCH, 2, 5), follower()
    assert may_send_range(leader(), wanted)
    assert not may_send_range(None, wanted)
    assert not may_send_range(one, wanted)

    one.received(LeaderOffsets(EPOCH, 10, 0))

    assert may_send_range(one, wanted)
