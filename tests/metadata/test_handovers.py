"""N5: a change of leader that nothing forces waits until the leader has settled, and not for ever."""

from __future__ import annotations

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster
from tidelog_broker.core.metadata.commands import ChangeBroker, ChangePartitions, Command, PartitionChange
from tidelog_broker.core.metadata.controller.deprioritized import DeprioritizedLeaders
from tidelog_broker.core.metadata.controller.handovers import (
    FORGET_MS,
    SETTLE_MS_MAX,
    SETTLED_MS,
    SETTLING_MAX,
    Handovers,
    Led,
)
from tidelog_broker.core.metadata.controller.liveness import SESSION_MS, Sessions
from tidelog_broker.core.metadata.controller.reports import FailureReports
from tidelog_broker.core.metadata.controller.upkeep import Upkeep
from tidelog_broker.core.metadata.decisions import elections
from tidelog_broker.core.metadata.decisions.reassignment import reassign
from tidelog_broker.core.metadata.image import ClusterImage

S = identifier(1)
EPOCH = 1
HEARTBEAT_MS = 250
TO_1 = (PartitionChange(S, 0, leader=1),)


def cluster(*commands: Command) -> ClusterImage:
    return applied(quorum_cluster(4), [created(1, replicas=(0, 1, 2)), *commands])


def test_a_leader_that_is_there_is_asked_and_deposed_when_it_has_settled() -> None:
    image, handovers = cluster(), Handovers()

    assert handovers.due(image, TO_1, 0) == ()
    (request,) = handovers.to_settle(image, 0, 10)
    assert request == Led(S, 0, image.streams[S].partitions[0].leader_epoch)
    assert handovers.to_settle(image, 1, 10) == ()
    handovers.settled(0, [request], 20)

    assert handovers.to_settle(image, 0, 30) == ()
    assert handovers.due(image, TO_1, 30) == TO_1
    assert repr(handovers) == "<Handovers requests=1 settled=1>"


def test_a_leader_that_says_nothing_is_not_waited_for_longer_than_it_may_take() -> None:
    image, handovers = cluster(), Handovers()

    times = [now for now in range(0, SETTLE_MS_MAX + 100, 20) if handovers.due(image, TO_1, now)]

    assert times[0] == SETTLE_MS_MAX


@pytest.mark.parametrize(
    "change",
    [
        PartitionChange(S, 0, isr=(0, 1)),
        PartitionChange(S, 0, leader=0),
        PartitionChange(S, 0, leader=None),
        PartitionChange(S, 7, leader=1),
        PartitionChange(identifier(9), 0, leader=1),
    ],
)
def test_what_deposes_nobody_who_could_speak_waits_for_nobody(change: PartitionChange) -> None:
    assert Handovers().due(cluster(), (change,), 0) == (change,)


@pytest.mark.parametrize("word", [Led(S, 0, 77), Led(S, 1, EPOCH), Led(identifier(2), 0, EPOCH)])
def test_a_word_of_another_epoch_or_partition_settles_nothing(word: Led) -> None:
    image, handovers = cluster(), Handovers()
    handovers.due(image, TO_1, 0)

    handovers.settled(0, [word], 10)
    handovers.settled(1, handovers.to_settle(image, 0, 10), 10)

    assert handovers.due(image, TO_1, 20) == ()


def test_a_word_holds_only_as_long_as_the_leader_refuses_appends_for_it() -> None:
    image, handovers = cluster(), Handovers()
    handovers.due(image, TO_1, 0)
    handovers.settled(0, handovers.to_settle(image, 0, 0), 0)

    assert handovers.due(image, TO_1, SETTLED_MS - 1) == TO_1
    assert handovers.due(image, TO_1, SETTLED_MS) == ()
    assert len(handovers.to_settle(image, 0, SETTLED_MS)) == 1


def test_what_nobody_asks_for_any_more_is_not_wished_for() -> None:
    image, handovers = cluster(), Handovers()
    handovers.due(image, TO_1, 0)

    assert handovers.to_settle(image, 0, FORGET_MS) == ()
    assert handovers.due(image, TO_1, 2 * SETTLE_MS_MAX) == ()


def test_a_wish_ends_with_the_leadership() -> None:
    image, handovers = cluster(), Handovers()
    handovers.due(image, TO_1, 0)
    image = applied(image, [ChangePartitions(TO_1)])

    assert handovers.to_settle(image, 0, 10) == ()
    assert handovers.to_settle(image, 1, 10) == ()


def test_a_leader_of_very_many_settles_one_part_after_the_other() -> None:
    image = leads_many(SETTLING_MAX + 5)
    handovers = Handovers()
    planned = elections.hand_over(image, 0)
    assert handovers.due(image, planned, 0) == ()

    first = handovers.to_settle(image, 0, 0)
    assert len(first) == SETTLING_MAX
    handovers.settled(0, first, 0)
    due = handovers.due(image, planned, 10)
    assert len(due) == SETTLING_MAX
    assert handovers.to_settle(image, 0, 10) == ()

    image = applied(image, [ChangePartitions(due)])
    assert handovers.due(image, elections.hand_over(image, 0), 20) == ()
    assert len(handovers.to_settle(image, 0, 20)) == 5


class Controlled:
    """A controller whose brokers are all heard, and settle when they are told to."""

    def __init__(self, image: ClusterImage) -> None:
        self.image, self.now = image, 0
        self.handovers = Handovers()
        self.upkeep = Upkeep(Sessions(), FailureReports(), DeprioritizedLeaders(), self.handovers)

    def tick(self) -> list[Command]:
        self.now += 20
        for broker in self.image.brokers.values():
            self.upkeep.sessions.heard(self.image, broker.id, broker.incarnation, self.now)
        done: list[Command] = []
        while (command := self.upkeep.next_command(self.image, self.now)) is not None:
            self.image = applied(self.image, [command])
            done.append(command)
        return done

    def settle(self) -> list[int]:
        """Every broker does what is wished; who was asked."""
        asked = []
        for broker in self.image.brokers:
            requests = self.handovers.to_settle(self.image, broker, self.now)
            self.handovers.settled(broker, requests, self.now)
            asked += [broker] * len(requests)
        return asked

    def leader(self) -> int | None:
        return self.image.streams[S].partitions[0].leader


def leads_many(count: int, *commands: Command) -> ClusterImage:
    """Broker 0 leads so many partitions."""
    streams = [created(n, replicas=(0, 1, 2)) for n in range(1, count + 1)]
    return applied(quorum_cluster(4), [*streams, *commands])


def test_a_stop_of_a_leader_of_thousands_takes_nothing_that_is_not_settled() -> None:
    controlled = Controlled(leads_many(5 * SETTLING_MAX + 5, ChangeBroker(0, stopping=True)))
    taken = 0

    for heartbeat in range(8):
        word = controlled.settle()
        for _ in range(HEARTBEAT_MS // 20):
            commands = controlled.tick()
            moved = sum(len(command.changes) for command in commands if isinstance(command, ChangePartitions))
            assert moved <= len(word), heartbeat
            taken += moved
        controlled.now += HEARTBEAT_MS % 20

    assert taken == 5 * SETTLING_MAX + 5


def moved_to(*target: int) -> Controlled:
    image = cluster()
    command = reassign(image, S, {0: target})
    assert command is not None
    joined = PartitionChange(S, 0, isr=(*target, *(one for one in (0, 1, 2) if one not in target)))
    return Controlled(applied(image, [command, ChangePartitions((joined,))]))


def test_a_reassignment_that_takes_the_leader_away_ends_when_it_has_settled() -> None:
    controlled = moved_to(3, 1, 2)

    assert controlled.tick() == []
    assert controlled.settle() == [0]
    controlled.tick()

    partition = controlled.image.streams[S].partitions[0]
    assert (partition.leader, partition.replicas, partition.reassigning) == (3, (3, 1, 2), False)
    assert controlled.tick() == []


def test_a_reassignment_that_leaves_the_leader_ends_at_once() -> None:
    controlled = moved_to(0, 1, 3)

    controlled.tick()

    assert controlled.image.streams[S].partitions[0].replicas == (0, 1, 3)
    assert controlled.settle() == []


def test_a_stopping_broker_hands_over_what_it_has_settled() -> None:
    controlled = Controlled(cluster(ChangeBroker(0, stopping=True)))

    assert controlled.tick() == []
    assert controlled.settle() == [0]
    controlled.tick()

    assert controlled.leader() == 1


def test_a_leader_that_dies_meanwhile_is_replaced_as_ever() -> None:
    controlled = moved_to(3, 1, 2)
    controlled.tick()
    heard = dict(controlled.image.brokers)
    del heard[0]

    for _ in range(SESSION_MS // 20 + 1):
        controlled.now += 20
        for broker in heard.values():
            controlled.upkeep.sessions.heard(controlled.image, broker.id, broker.incarnation, controlled.now)
        while (command := controlled.upkeep.next_command(controlled.image, controlled.now)) is not None:
            controlled.image = applied(controlled.image, [command])

    assert controlled.leader() == 3
