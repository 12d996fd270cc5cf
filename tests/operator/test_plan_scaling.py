"""The plan of the number of brokers in each situation, and the same result wherever the operator is
killed."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from support.kube.situations import Brokers, stream
from tidelog.model import PartitionDescription
from tidelog_operator import actions as do
from tidelog_operator.plan.balancing import plan_balancing
from tidelog_operator.plan.scaling import ScalingAction, plan_scaling
from tidelog_operator.resources.stateful_set import Pods

AT_ONCE = 2


class Cluster:
    """Brokers and their StatefulSet, changed by actions."""

    def __init__(self, brokers: Brokers, pods: Pods, voters: tuple[int, ...] = (0, 1, 2)) -> None:
        self.brokers, self.pods, self.voters = brokers, pods, voters
        self.executed: list[ScalingAction] = []

    def plan(self, wanted: int, controller: int | None = 0) -> tuple[ScalingAction, ...]:
        view = self.brokers.view()
        view = replace(view, cluster=replace(view.cluster, voters=self.voters, controller=controller))
        found = plan_scaling(wanted, self.pods, view, AT_ONCE)
        self.problem = found.problem
        return found.actions

    def do(self, action: ScalingAction) -> None:
        self.executed.append(action)
        match action:
            case do.CordonBroker() | do.UncordonBroker():
                self.brokers.do(action)
            case do.UnregisterBroker(broker):
                assert broker not in self.voters
                self.brokers.do(action)
            case do.SetBrokerCount(expected, count, draining):
                assert expected == self.pods.count
                if count < expected:
                    assert count not in self.brokers.states, "its broker is there"
                for new in range(expected, count):
                    self.brokers.states[new] = "active"
                self.pods = Pods(count, draining)
            case do.Reassign():
                assert len(action.moves) <= AT_ONCE
                self.brokers.do(action)

    def partitions(self) -> list[PartitionDescription]:
        return [one for each in self.brokers.streams.values() for one in each.partitions]

    def vote(self) -> None:
        """Removes the votes of draining brokers, as brokers do."""
        holders = {broker for one in self.partitions() for broker in one.replicas}
        for broker, state in self.brokers.states.items():
            if state == "cordoned" and broker not in holders and broker in self.voters:
                (other, *_) = [
                    one
                    for one, how in self.brokers.states.items()
                    if how == "active" and one not in self.voters
                ]
                self.voters = tuple(sorted({*self.voters, other} - {broker}))

    def settle(self, wanted: int, *, crash_at: int | None = None) -> None:
        done = 0
        for _ in range(60):
            self.vote()
            actions = self.plan(wanted)
            if not actions:
                return
            for action in actions:
                if done == crash_at:
                    crash_at = None
                    break
                self.do(action)
                done += 1
        raise AssertionError(f"it goes on for ever: {actions}")


def five(*, replicas: tuple[tuple[int, ...], ...] = ((0, 3, 4), (4, 1, 2), (3, 2, 0), (2, 4, 1))) -> Cluster:
    return Cluster(Brokers(5, stream("orders", replicas)), Pods(5), voters=(0, 3, 4))


def test_the_desired_number_of_brokers_needs_no_action() -> None:
    assert five().plan(5) == ()


def test_new_brokers_are_added_at_once() -> None:
    cluster = Cluster(Brokers(3), Pods(3))

    assert cluster.plan(5) == (do.SetBrokerCount(3, 5, ()),)


def test_empty_brokers_are_removed_the_last_one_first() -> None:
    cluster = five()

    cluster.settle(3)

    kinds = [type(one) for one in cluster.executed]
    assert kinds[0] is do.SetBrokerCount
    assert cluster.executed[0] == do.SetBrokerCount(5, 5, (3, 4))
    assert cluster.executed[-4:] == [
        do.UnregisterBroker(4, 2),
        do.SetBrokerCount(5, 4, (3,)),
        do.UnregisterBroker(3, 2),
        do.SetBrokerCount(4, 3, ()),
    ]
    assert list(cluster.brokers.states) == [0, 1, 2]
    for one in cluster.brokers.streams["orders"].partitions:
        assert set(one.replicas) == {0, 1, 2}
    assert not set(cluster.voters) & {3, 4}


def test_draining_brokers_are_recorded_before_they_are_cordoned() -> None:
    assert five().plan(4) == (do.SetBrokerCount(5, 5, (4,)),)


def test_a_voter_waits_until_another_broker_votes() -> None:
    cluster = Cluster(Brokers(4), Pods(4, (3,)), voters=(0, 1, 3))
    cluster.brokers.states[3] = "cordoned"

    assert cluster.plan(3) == ()
    cluster.vote()
    assert cluster.plan(3) == (do.UnregisterBroker(3, 1), do.SetBrokerCount(4, 3, ()))


def test_moving_replicas_are_not_moved_again_and_count_as_moves() -> None:
    cluster = five()
    cluster.pods = Pods(5, (3, 4))
    orders = cluster.brokers.streams["orders"]
    parts = list(orders.partitions)
    parts[0] = replace(parts[0], replicas=(0, 1, 2, 3, 4), adding=(1, 2), removing=(3, 4))
    cluster.brokers.streams["orders"] = replace(orders, partitions=tuple(parts))

    (reassign,) = (one for one in cluster.plan(3) if isinstance(one, do.Reassign))

    assert [(one.name, one.partition) for one in reassign.moves] == [("orders", 1)]


def test_a_stream_with_more_replicas_than_brokers_prevents_removal() -> None:
    cluster = five()

    assert cluster.plan(2) == ()

    assert (
        "The stream orders has 3 replicas of each partition, but only 2 brokers would remain"
        in cluster.problem
    )


def test_a_broker_that_stays_after_all_is_uncordoned() -> None:
    cluster = five()
    for action in (*cluster.plan(3), *cluster.plan(3)):
        cluster.do(action)
    cluster.do(cluster.plan(3)[0])

    cluster.settle(5)

    assert set(cluster.brokers.states.values()) == {"active"}
    assert cluster.pods == Pods(5, ())


def test_a_broker_cordoned_by_an_administrator_stays_cordoned() -> None:
    cluster = five()
    cluster.brokers.states[1] = "cordoned"

    cluster.settle(5)

    assert cluster.brokers.states[1] == "cordoned"


def test_a_pod_whose_broker_never_registered_is_removed() -> None:
    cluster = Cluster(Brokers(3), Pods(4))

    cluster.settle(3)

    assert cluster.pods == Pods(3, ())


@pytest.mark.parametrize(("begin", "wanted"), [(five, 3), (five, 4), (five, 7)])
def test_wherever_the_operator_is_killed_the_end_is_the_same(begin, wanted: int) -> None:  # type: ignore[no-untyped-def]
    whole = begin()
    whole.settle(wanted)

    for crash_at in range(len(whole.executed) + 2):
        cluster = begin()
        cluster.settle(wanted, crash_at=crash_at)
        assert (cluster.pods, cluster.brokers.states) == (whole.pods, whole.brokers.states), crash_at


# --- obstacles


def test_too_few_brokers_for_the_replicas_are_reported() -> None:
    cluster = five()
    cluster.pods = Pods(5, (3, 4))
    cluster.brokers.states[1] = "fenced"

    assert cluster.plan(3) == ()

    assert "The brokers that will be removed cannot be drained now: no broker is left" in cluster.problem


def test_a_staying_broker_is_uncordoned_even_if_others_cannot_be_removed() -> None:
    cluster = five()
    cluster.pods = Pods(5, (2, 3, 4))
    cluster.brokers.states |= {2: "cordoned", 1: "cordoned"}

    assert cluster.plan(3) == (do.UncordonBroker(2, 1), do.SetBrokerCount(5, 5, (3, 4)))
    assert "Lower its replicationFactor first" in cluster.problem


@pytest.mark.parametrize("wanted", [3, 4, 5])
def test_without_a_controller_nothing_is_removed_or_changed(wanted: int) -> None:
    cluster = five(replicas=((0, 1, 2),))
    cluster.voters = (0, 1, 2)
    cluster.pods = Pods(5, (3, 4))
    cluster.brokers.states |= {3: "cordoned", 4: "cordoned"}

    assert cluster.plan(wanted, controller=None) == ()


def test_missing_pods_come_back_without_a_controller_or_an_answer() -> None:
    missing = do.SetBrokerCount(2, 5, ())

    cluster = five()
    cluster.pods = Pods(2)
    assert cluster.plan(5, controller=None) == (missing,)
    assert plan_scaling(5, Pods(2), None, AT_ONCE).actions == (missing,)
    assert plan_scaling(5, Pods(2, (1,)), None, AT_ONCE).actions == ()


def test_a_broker_that_may_be_registered_is_unregistered_before_its_pod() -> None:
    cluster = Cluster(Brokers(3), Pods(4, (3,)))

    assert cluster.plan(3) == (do.UnregisterBroker(3, 0), do.SetBrokerCount(4, 3, ()))


# --- changes of the desired number


def test_moves_to_a_leaving_broker_are_redirected_at_once() -> None:
    cluster = five(replicas=((0, 1, 2), (0, 1, 2), (0, 1, 2)))
    cluster.pods = Pods(5, (3, 4))
    orders = cluster.brokers.streams["orders"]
    parts = [
        replace(one, replicas=(0, 1, new, 2), adding=(new,), removing=(2,))
        for one, new in zip(orders.partitions, (3, 4, 3), strict=True)
    ]
    cluster.brokers.streams["orders"] = replace(orders, partitions=tuple(parts))

    (reassign,) = (one for one in cluster.plan(3) if isinstance(one, do.Reassign))

    assert [(one.partition, set(one.replicas)) for one in reassign.moves] == [
        (0, {0, 1, 2}),
        (1, {0, 1, 2}),
        (2, {0, 1, 2}),
    ]


def test_a_staying_broker_is_uncordoned_whatever_its_state() -> None:
    cluster = five()
    cluster.pods = Pods(5, (3, 4))

    assert cluster.plan(5) == (do.UncordonBroker(3, 1), do.UncordonBroker(4, 1), do.SetBrokerCount(5, 5, ()))


@pytest.mark.parametrize("wanted", [3, 4, 5, 7])
def test_the_pod_of_an_unregistered_broker_is_removed_in_any_case(wanted: int) -> None:
    cluster = Cluster(Brokers(4, states={3: "cordoned"}), Pods(5, (3, 4)))

    actions = cluster.plan(wanted)

    assert actions[-2:] == (do.UnregisterBroker(4, 0), do.SetBrokerCount(5, 4, (3,)))
    assert actions[:-2] == ((do.UncordonBroker(3, 1),) if wanted > 3 else ())


def test_empty_brokers_without_pods_and_votes_are_unregistered() -> None:
    away = {3: "fenced", 5: "fenced", 6: "active"}
    cluster = Cluster(Brokers(7, stream("orders", [(0, 1, 2)]), states=away), Pods(3), voters=(0, 1, 5))

    assert cluster.plan(3) == (do.UnregisterBroker(3, 1),)
    assert (
        "Brokers without pods still hold votes, or replicas that no other broker can take over: 5. Set "
        "brokers to 6, wait until all brokers are ready" in cluster.problem
    )


def test_replicas_of_brokers_without_pods_move_away_a_few_at_a_time() -> None:
    """A former operator gave them replicas at the last moment."""
    replicas = [(0, 1, 3), (1, 2, 4), (2, 3, 0)]
    cluster = Cluster(Brokers(5, stream("orders", replicas), states={3: "fenced", 4: "fenced"}), Pods(3))

    cluster.settle(3)

    assert {one.replicas for one in cluster.partitions()} <= set(permutations(range(3)))
    assert sorted(cluster.brokers.states) == [0, 1, 2]
    assert cluster.problem == ""


def test_a_partition_that_only_a_broker_without_a_pod_can_lead_is_not_moved() -> None:
    cluster = Cluster(Brokers(4, stream("orders", [(3,), (0, 3)]), states={3: "fenced"}), Pods(3))
    orders = cluster.brokers.streams["orders"]
    lost = replace(orders.partitions[0], leader=None)
    cluster.brokers.streams["orders"] = replace(orders, partitions=(lost, *orders.partitions[1:]))

    (reassign,) = cluster.plan(3)

    assert isinstance(reassign, do.Reassign)
    assert [one.partition for one in reassign.moves] == [1]
    assert "can take over: 3. Set brokers to 4" in cluster.problem


def test_too_few_brokers_to_move_replicas_to_are_explained() -> None:
    cluster = Cluster(Brokers(4, stream("orders", [(0, 1, 2, 3)]), states={3: "fenced"}), Pods(3))

    assert cluster.plan(3) == ()
    assert "can take over: 3. Set brokers to 4" in cluster.problem


def test_a_broker_beyond_the_pods_gets_no_replica() -> None:
    """It stops soon, although it is active still."""
    view = replace(five().brokers.view(), pods=3)

    assert view.schedulable == (0, 1, 2)
    assert plan_balancing(replace(view, sizes={}), 10) == ()


def test_a_broker_whose_pod_comes_back_stays_registered() -> None:
    cluster = Cluster(Brokers(4, states={3: "fenced"}), Pods(3))

    assert cluster.plan(4) == (do.SetBrokerCount(3, 4, ()),)


@pytest.mark.parametrize(
    ("brokers", "wanted", "voters", "way_out"),
    [
        (3, 2, (0, 1, 2), "Set voters to 1 first"),
        (3, 1, (0, 1, 2), "Set voters to 1 first"),
        (4, 2, (0, 1, 3), "Set voters to 1 first"),
        (5, 3, (0, 1, 2, 3, 4), "Set voters to 3 first"),
    ],
)
def test_fewer_brokers_than_voters_are_explained_before_any_cordon(
    brokers: int, wanted: int, voters: tuple[int, ...], way_out: str
) -> None:
    cluster = Cluster(Brokers(brokers), Pods(brokers), voters)

    assert cluster.plan(wanted) == ()
    assert way_out in cluster.problem


@pytest.mark.parametrize(("brokers", "wanted", "voters"), [(3, 2, (0,)), (5, 3, (0, 1, 2, 4)), (2, 1, (0,))])
def test_as_many_brokers_as_voters_are_enough(brokers: int, wanted: int, voters: tuple[int, ...]) -> None:
    cluster = Cluster(Brokers(brokers), Pods(brokers), voters)

    assert cluster.plan(wanted) != ()
    assert cluster.problem == ""
