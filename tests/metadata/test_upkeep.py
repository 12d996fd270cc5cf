"""What the controller does unasked, and in which order."""

from __future__ import annotations

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog_broker.core.metadata.commands import ChangeBroker, ChangePartitions, Command, PartitionChange
from tidelog_broker.core.metadata.controller import upkeep
from tidelog_broker.core.metadata.controller.deprioritized import DeprioritizedLeaders
from tidelog_broker.core.metadata.controller.handovers import Handovers
from tidelog_broker.core.metadata.controller.liveness import SESSION_MS, Sessions
from tidelog_broker.core.metadata.controller.reports import Evidence, FailureReports
from tidelog_broker.core.metadata.controller.upkeep import Upkeep
from tidelog_broker.core.metadata.image import ClusterImage, Share

S = identifier(1)


def cluster(*commands: Command, replicas: tuple[int, ...] = (0, 1, 2)) -> ClusterImage:
    return applied(quorum_cluster(4), [created(1, replicas=replicas), *commands])


class Controlled:
    """A controller whose brokers are heard until one is not, and settle what they are told to (N5)."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.now = 0
        self.handovers = Handovers()
        self.upkeep = Upkeep(Sessions(), FailureReports(), DeprioritizedLeaders(), self.handovers)

    def tick(self, ms: int, *heard: int) -> list[Command]:
        """Time goes on; what was done, until nothing is to be done."""
        done: list[Command] = []
        for _ in range(ms // 20):
            self.now += 20
            for broker in heard:
                run = self.image.brokers[broker].incarnation
                self.upkeep.sessions.heard(self.image, broker, run, self.now)
                self.handovers.settled(
                    broker, self.handovers.to_settle(self.image, broker, self.now), self.now
                )
            while (command := self.upkeep.next_command(self.image, self.now)) is not None:
                self.image = applied(self.image, [command])
                done.append(command)
                assert len(done) < 20, "it goes on for ever"
        return done

    def report(self, reporter: int, reported: int) -> None:
        self.upkeep.reports.report(
            self.image,
            reporter=reporter,
            reporter_run=self.image.brokers[reporter].incarnation,
            reported=reported,
            reported_run=self.image.brokers[reported].incarnation,
            evidence=Evidence.REFUSED,
            now_ms=self.now,
        )


def test_a_healthy_cluster_needs_nothing() -> None:
    assert Controlled(cluster()).tick(5 * SESSION_MS, 0, 1, 2, 3) == []


def test_r14_a_silent_broker_is_fenced_and_replaced_everywhere_in_one_entry() -> None:
    image = applied(cluster(), [created(n, replicas=(0, 1, 2)) for n in range(2, 100)])
    controlled = Controlled(image)

    (command,) = controlled.tick(SESSION_MS + 40, 1, 2, 3)

    assert isinstance(command, ChangeBroker)
    assert command.fenced is True
    assert len(command.changes) == 99
    assert controlled.image.shares[0] == Share(99, 0)
    assert all(stream.partitions[0].leader == 1 for stream in controlled.image.streams.values())


def test_m3_a_broker_that_is_heard_again_is_unfenced_and_leads_what_only_it_can() -> None:
    controlled = Controlled(cluster(replicas=(0,)))
    controlled.tick(SESSION_MS + 40, 1, 2, 3)
    partition = controlled.image.streams[S].partitions[0]
    assert (partition.isr, partition.eligible, partition.leader) == ((), (0,), None)

    (command,) = controlled.tick(20, 0, 1, 2, 3)

    assert command == ChangeBroker(0, identifier(1), fenced=False, changes=(PartitionChange(S, 0, leader=0),))
    assert controlled.image.streams[S].partitions[0].isr == (0,)


def test_r14_a_reported_leader_leaves_the_isr_in_the_entry_that_replaces_it() -> None:
    controlled = Controlled(cluster())
    controlled.report(1, 0)
    controlled.report(2, 0)

    (command,) = controlled.tick(20, 0, 1, 2, 3)

    assert command == ChangePartitions((PartitionChange(S, 0, isr=(1, 2), leader=1),))


def test_r14_a_reported_leader_stays_in_an_isr_that_would_be_below_its_minimum() -> None:
    controlled = Controlled(cluster(ChangePartitions((PartitionChange(S, 0, isr=(0, 2)),))))
    controlled.report(2, 0)

    (command,) = controlled.tick(20, 0, 1, 2, 3)

    assert command == ChangePartitions((PartitionChange(S, 0, leader=2),))
    assert controlled.image.streams[S].partitions[0].isr == (0, 2)


def test_r14_after_an_election_by_report_the_same_reports_do_nothing_for_a_while() -> None:
    controlled = Controlled(cluster())
    for reporter in (1, 2):
        controlled.report(reporter, 0)
    controlled.tick(20, 0, 1, 2, 3)
    for reporter in (0, 2):
        controlled.report(reporter, 1)

    assert controlled.tick(500, 0, 1, 2, 3) == []


def test_fencing_comes_before_everything_else() -> None:
    nobody = ChangePartitions((PartitionChange(S, 0, leader=None),))
    controlled = Controlled(cluster())
    controlled.tick(SESSION_MS - 40, 0, 1, 2)
    controlled.image = applied(controlled.image, [nobody])

    command = controlled.upkeep.next_command(controlled.image, controlled.now + 100)

    assert isinstance(command, ChangeBroker)
    assert command.broker_id == 3
    assert command.changes == (PartitionChange(S, 0, leader=0),)


def test_a_partition_without_a_leader_gets_one_as_soon_as_it_can() -> None:
    controlled = Controlled(cluster(ChangePartitions((PartitionChange(S, 0, leader=None),))))

    assert controlled.tick(20, 0, 1, 2, 3) == [ChangePartitions((PartitionChange(S, 0, leader=0),))]


def test_a_stopping_broker_hands_over_the_rest_when_others_have_caught_up() -> None:
    alone = ChangePartitions((PartitionChange(S, 0, isr=(0,)),))
    image = applied(cluster(alone), [created(2, replicas=(0, 1, 2))])
    command = upkeep.stop(image, 0, identifier(1))

    assert command == ChangeBroker(
        0, identifier(1), stopping=True, changes=(PartitionChange(identifier(2), 0, leader=1),)
    )
    controlled = Controlled(applied(image, [command]))
    assert controlled.tick(20, 0, 1, 2, 3) == []
    joined = ChangePartitions((PartitionChange(S, 0, isr=(0, 2)),))
    controlled.image = applied(controlled.image, [joined])
    assert controlled.tick(40, 0, 1, 2, 3) == [ChangePartitions((PartitionChange(S, 0, leader=2),))]


def test_a_wish_to_stop_is_taken_once_and_from_the_registered_run_only() -> None:
    image = cluster()

    assert upkeep.stop(image, 0, identifier(77)) is None
    assert upkeep.stop(image, 9, identifier(77)) is None
    taken = upkeep.stop(image, 0, identifier(1))
    assert taken is not None
    assert upkeep.stop(applied(image, [taken]), 0, identifier(1)) is None


def test_a_broker_that_was_marked_before_hands_over_what_it_leads_when_it_stops() -> None:
    image = cluster(ChangeBroker(0, stopping=True))

    assert upkeep.stop(image, 0, identifier(1)) == ChangePartitions((PartitionChange(S, 0, leader=1),))


def test_a_reassignment_that_is_complete_already_is_ended() -> None:
    change = PartitionChange(S, 0, replicas=(1, 2, 0), removing=(0,))
    controlled = Controlled(cluster(ChangePartitions((change,))))

    controlled.tick(40, 0, 1, 2, 3)

    after = controlled.image.streams[S].partitions[0]
    assert (after.replicas, after.isr, after.leader, after.removing) == ((1, 2), (1, 2), 1, ())


def test_a_whole_cluster_that_was_away_is_led_again() -> None:
    controlled = Controlled(cluster())
    controlled.tick(SESSION_MS + 100)
    assert all(broker.fenced for broker in controlled.image.brokers.values())

    controlled.tick(40, 2)

    partition = controlled.image.streams[S].partitions[0]
    assert (partition.leader, partition.isr) == (2, (2,))
    controlled.image = applied(controlled.image, [registered(0, 2), registered(1, 2)])
    assert controlled.tick(40, 0, 1, 2) == []
