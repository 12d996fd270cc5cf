"""The plan of volumes: those of removed brokers, and lost or damaged ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.kube.imagined import CLAIMS, NOW, SET, Kubernetes, claim, deleted, kinds
from support.kube.situations import Brokers, stream, without_controller
from tidelog.model import PartitionStanding, StreamDescription
from tidelog_operator import actions as do
from tidelog_operator.model import ObjectKey
from tidelog_operator.resources.stateful_set import Pods, stateful_set

# --- volumes of removed brokers


def went(kube: Kubernetes) -> Brokers:
    """Five brokers were reduced to three; two volumes are left."""
    brokers = Brokers(3)
    kube.settle(brokers)
    kube.claims += [claim(3), claim(4)]
    return brokers


def test_removing_pods_removes_no_volumes() -> None:
    kube = Kubernetes()
    kube.settle()

    policy = kube.objects[SET]["spec"]["persistentVolumeClaimRetentionPolicy"]

    assert policy == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_the_volume_of_a_removed_broker_is_deleted_after_its_pod() -> None:
    kube = Kubernetes()
    brokers = went(kube)
    kube.pods_there.append(replace(kube.pods_there[0], name="main-4", broker_id=4, deleting=True))
    kube.claims[-2] = replace(kube.claims[-2], deleting=True)
    assert kube.plan(brokers.view()).actions == ()

    kube.pods_there.pop()
    assert kube.plan(brokers.view()).actions == (
        do.DeleteObject("PersistentVolumeClaim", ObjectKey("shop", "data-main-4"), "uid-4"),
    )


def test_a_volume_stays_while_its_broker_may_be_registered() -> None:
    kube = Kubernetes()
    brokers = went(kube)

    assert kube.plan(None).actions == ()
    assert kube.plan(without_controller(brokers.view())).actions == ()
    brokers.states |= {3: "active", 4: "active"}
    assert kube.plan(brokers.view()).actions == ()


@pytest.mark.parametrize("answering", [True, False])
def test_no_broker_starts_with_the_volume_of_a_removed_one(answering: bool) -> None:
    kube = Kubernetes()
    brokers = went(kube)
    kube.manifest["spec"]["brokers"] = 5

    decision = kube.plan(brokers.view() if answering else None)

    assert deleted(decision) == (["data-main-3", "data-main-4"] if answering else [])
    assert kinds(decision) == ["DeleteObject"] * len(decision.actions)


def test_a_staying_broker_is_uncordoned_once_while_new_pods_wait() -> None:
    kube = Kubernetes(brokers=4)
    brokers = Brokers(4)
    kube.settle(brokers)
    kube.manifest["spec"]["brokers"] = 5
    kube.do(do.ApplyObject(stateful_set(kube.cluster, Pods(4, (3,)))), brokers)
    brokers.states[3] = "cordoned"
    kube.claims.append(replace(claim(4), deleting=True))
    kube.pods_there.append(replace(kube.pods_there[0], name="main-4", broker_id=4, deleting=True))

    actions = kube.plan(brokers.view()).actions
    for action in actions:
        kube.do(action, brokers)

    assert actions[0] == do.UncordonBroker(3, 1)
    assert kube.pods == Pods(4)
    assert kube.plan(brokers.view()).actions == ()


def test_a_registered_broker_keeps_its_volume() -> None:
    kube = Kubernetes()
    brokers = went(kube)
    brokers.states |= {3: "fenced", 4: "fenced"}
    kube.manifest["spec"]["brokers"] = 5

    assert kinds(kube.plan(brokers.view())) == ["SetLowestCount", "StatefulSet"]


def test_volumes_of_an_earlier_cluster_without_answers_are_explained() -> None:
    kube = Kubernetes()
    kube.claims = list(CLAIMS)

    for _ in range(2):
        decision = kube.plan()
        assert "of an earlier Cluster exist (data-main-0, data-main-1, data-main-2)" in decision.problem
        for action in decision.actions:
            kube.do(action)

    assert kube.pods == Pods(3)
    assert kube.plan(Brokers(3).view()).problem == ""


# --- lost volumes


def lost(kube: Kubernetes, number: int) -> None:
    kube.claims = [replace(one, phase="Lost") if one.broker_id == number else one for one in kube.claims]


def test_a_lost_volume_is_replaced_after_the_grace_time() -> None:
    kube, brokers = Kubernetes(), Brokers(3, stream("orders"))
    kube.settle(brokers)
    lost(kube, 1)

    first = kube.plan(brokers.view())
    assert (first.actions, first.lost) == ((), {1: NOW})

    kube.manifest["status"] = {"brokers": [{"id": 1, "volumeLostSince": NOW}]}
    assert kube.plan(brokers.view(), "2026-01-01T00:14:59Z").actions == ()
    then = kube.plan(brokers.view(), "2026-01-01T00:15:00Z")
    assert then.lost == {1: NOW}
    assert then.actions == (
        do.DeleteObject("PersistentVolumeClaim", ObjectKey("shop", "data-main-1"), "uid-1"),
        do.DeleteObject("Pod", ObjectKey("shop", "main-1"), "pod-1"),
    )

    kube.pods_there = [replace(one, deleting=one.broker_id == 1) for one in kube.pods_there]
    kube.claims = [replace(one, deleting=one.broker_id == 1) for one in kube.claims]
    assert kube.plan(brokers.view(), "2026-01-01T00:15:02Z").actions == ()


def test_other_changes_do_not_reset_the_time_of_a_lost_volume() -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)
    gone(kube, 1)
    kube.manifest["spec"]["image"] = "tidelog:2"

    decision = kube.plan(brokers.view())

    assert (deleted(decision), decision.lost) == ([], {1: "2026-01-01T00:00:00Z"})


def test_a_volume_that_comes_back_in_time_is_not_lost() -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)
    kube.manifest["status"] = {"brokers": [{"id": 1, "volumeLostSince": "2026-01-01T00:00:00Z"}]}

    assert kube.plan(brokers.view()).lost == {}


def damaged(kube: Kubernetes, number: int) -> None:
    """Its broker exits again and again, because its volume is damaged."""
    kube.pods_there = [
        replace(one, ready=False, damaged=True) if one.broker_id == number else one for one in kube.pods_there
    ]


def test_a_damaged_volume_is_replaced_like_a_lost_one() -> None:
    kube, brokers = Kubernetes(), Brokers(3, stream("orders"))
    kube.settle(brokers)
    damaged(kube, 1)
    brokers.states[1] = "fenced"

    first = kube.plan(brokers.view())
    assert (deleted(first), first.lost) == ([], {1: NOW})

    kube.manifest["status"] = {"brokers": [{"id": 1, "volumeLostSince": NOW}]}
    assert deleted(kube.plan(brokers.view(), "2026-01-01T00:15:00Z")) == ["data-main-1", "main-1"]


def test_a_damaged_volume_with_the_only_replica_is_kept() -> None:
    kube = Kubernetes()
    alone = stream("orders", [(1,)])
    brokers = Brokers(3, replace(alone, partitions=(replace(alone.partitions[0], leader=None),)))
    kube.settle(brokers)
    damaged(kube, 1)
    brokers.states[1] = "fenced"
    kube.manifest["status"] = {"brokers": [{"id": 1, "volumeLostSince": "2026-01-01T00:00:00Z"}]}

    decision = kube.plan(brokers.view())

    assert deleted(decision) == []
    assert (
        "The volume of broker 1 is damaged, and no other broker has all records of orders/0"
        in decision.problem
    )


def test_a_volume_is_not_damaged_while_its_broker_is_up() -> None:
    kube, brokers = Kubernetes(), Brokers(3, stream("orders"))
    kube.settle(brokers)
    damaged(kube, 1)
    kube.manifest["status"] = {"brokers": [{"id": 1, "volumeLostSince": "2026-01-01T00:00:00Z"}]}

    decision = kube.plan(brokers.view())

    assert (deleted(decision), decision.lost) == ([], {})


def test_a_lost_volume_with_the_only_replica_is_kept() -> None:
    kube = Kubernetes()
    alone = stream("orders", [(1,)])
    brokers = Brokers(3, replace(alone, partitions=(replace(alone.partitions[0], leader=None),)))
    kube.settle(brokers)
    lost(kube, 1)
    kube.manifest["status"] = {"brokers": [{"id": 1, "volumeLostSince": "2026-01-01T00:00:00Z"}]}

    decision = kube.plan(brokers.view())

    assert decision.actions == ()
    assert "no other broker has all records of orders/0" in decision.problem


def gone(kube: Kubernetes, *brokers: int) -> None:
    """Makes these volumes lost, for longer than the grace time."""
    for number in brokers:
        lost(kube, number)
    since = "2026-01-01T00:00:00Z"
    kube.manifest["status"] = {"brokers": [{"id": one, "volumeLostSince": since} for one in brokers]}


def held_by(*isrs: tuple[int, ...], replicas: tuple[int, ...] = (0, 1, 2)) -> StreamDescription:
    """Creates a stream with a partition for each of `isrs`."""
    made = stream("orders", [replicas] * len(isrs))
    parts = zip(made.partitions, isrs, strict=True)
    return replace(made, partitions=tuple(replace(one, isr=isr) for one, isr in parts))


def test_two_lost_volumes_are_replaced_one_after_the_other() -> None:
    kube, brokers = Kubernetes(brokers=5), Brokers(5, stream("orders", [(0, 3, 4), (4, 1, 2)]))
    kube.settle(brokers)
    gone(kube, 3, 4)

    assert deleted(kube.plan(brokers.view())) == ["data-main-3", "main-3"]

    kube.claims = [replace(one, deleting=one.broker_id == 3) for one in kube.claims]
    kube.pods_there = [replace(one, deleting=one.broker_id == 3) for one in kube.pods_there]
    assert kube.plan(brokers.view()).actions == ()

    kube.claims = [one for one in kube.claims if one.broker_id != 3]
    brokers.states[3] = "fenced"
    meanwhile = kube.plan(brokers.view())
    assert meanwhile.actions == ()
    assert "It will be replaced when all other brokers are available; unavailable: 3." in meanwhile.problem

    kube.claims.append(claim(3))
    brokers.states[3] = "active"
    assert deleted(kube.plan(brokers.view())) == ["data-main-4", "main-4"]


def test_a_volume_that_is_being_deleted_is_replaced_first() -> None:
    kube, brokers = Kubernetes(brokers=5), Brokers(5)
    kube.settle(brokers)
    gone(kube, 3, 4)
    kube.claims = [replace(one, deleting=one.broker_id == 4) for one in kube.claims]

    assert deleted(kube.plan(brokers.view())) == ["main-4"]


def test_a_second_broker_with_a_lost_volume_does_not_count() -> None:
    kube, brokers = Kubernetes(brokers=5), Brokers(5, held_by((3, 4), replicas=(3, 4)))
    kube.settle(brokers)
    gone(kube, 3, 4)

    decision = kube.plan(brokers.view())

    assert decision.actions == ()
    assert "no other broker has all records of orders/0" in decision.problem


def test_a_recently_lost_broker_does_not_count() -> None:
    kube, brokers = Kubernetes(brokers=5), Brokers(5, held_by((3, 4), replicas=(3, 4)))
    kube.settle(brokers)
    gone(kube, 3)
    lost(kube, 4)

    assert kube.plan(brokers.view()).actions == ()


def test_replicas_of_running_moves_count_as_held() -> None:
    kube = Kubernetes(brokers=5)
    brokers = Brokers(5, held_by((4,), replicas=(0, 4)))
    orders = brokers.streams["orders"]
    moving = replace(orders.partitions[0], adding=(0,), removing=(4,))
    brokers.streams["orders"] = replace(orders, partitions=(moving,))
    kube.settle(brokers)
    gone(kube, 4)

    assert "no other broker has all records of orders/0" in kube.plan(brokers.view()).problem


def test_the_only_replica_of_one_broker_does_not_block_another() -> None:
    kube, brokers = Kubernetes(brokers=5), Brokers(5, held_by((3,), replicas=(3,)))
    kube.settle(brokers)
    gone(kube, 3, 4)

    decision = kube.plan(brokers.view())

    assert deleted(decision) == ["data-main-4", "main-4"]
    assert (
        "The volume of broker 3 is lost, and no other broker has all records of orders/0" in decision.problem
    )


def test_internal_streams_are_checked_too() -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)
    gone(kube, 1)
    view = brokers.view()
    (alone,) = held_by((1,)).partitions
    troubled = (PartitionStanding("__own", b"o" * 16, alone, 2),)

    decision = kube.plan(replace(view, cluster=replace(view.cluster, troubled=troubled)))

    assert decision.actions == ()
    assert "no other broker has all records of __own/0" in decision.problem


def test_nothing_is_replaced_without_a_controller() -> None:
    kube, brokers = Kubernetes(), Brokers(3, stream("orders"))
    kube.settle(brokers)
    gone(kube, 1)

    decision = kube.plan(without_controller(brokers.view()))

    assert decision.actions == ()
    assert "It will be replaced when the other brokers have a controller" in decision.problem


@pytest.mark.parametrize("other", ["lost", "away"])
def test_nothing_is_replaced_when_most_voters_are_lost(other: str) -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)
    gone(kube, *((1, 2) if other == "lost" else (1,)))
    if other == "away":
        brokers.states[2] = "fenced"

    decision = kube.plan(brokers.view())

    assert decision.actions == ()
    assert "too few of the voters 0, 1, 2 are available. Restore a volume" in decision.problem
