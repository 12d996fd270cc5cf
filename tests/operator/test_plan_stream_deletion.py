"""The plan of Streams that are deleted or cannot be read, and of streams whose objects are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.kube.decisions import CLAIM, KEY, decided, kinds
from support.kube.situations import (
    CLUSTER,
    NAMESPACE,
    Brokers,
    settle,
    stream,
    stream_object,
)
from tidelog_operator import actions as do
from tidelog_operator.model import ObjectKey, StreamClaim, StreamObject
from tidelog_operator.plan.streams import (
    RETAINED_AT_ONCE_MAX,
    Decision,
    Finding,
    Reason,
    plan_retained,
    plan_streams,
    plan_without_brokers,
    plan_without_cluster,
)

# --- deletion and retention


ADD, REMOVE, CLAIM_IT, DELETE = do.AddFinalizer, do.RemoveFinalizer, do.AlterStream, do.DeleteStream
HELD, FREE, STAYS, GOES = True, False, False, True

NOBODYS = ["", "retained:shop/orders", "kubernetes:shop/orders/uid-of-one-that-is-no-more"]
OTHERS = ["kubernetes:shop/other/uid-of-other", "terraform"]


@pytest.mark.parametrize(
    ("policy", "finalized", "deleting", "owners", "actions"),
    [
        ("Retain", FREE, STAYS, [CLAIM], []),
        ("Retain", FREE, STAYS, NOBODYS, [CLAIM_IT]),
        ("Retain", FREE, STAYS, OTHERS, []),
        ("Retain", FREE, GOES, [CLAIM, *NOBODYS, *OTHERS], []),
        # An earlier operator set it on every Stream; and policies change.
        ("Retain", HELD, STAYS, [CLAIM], [REMOVE]),
        ("Retain", HELD, STAYS, NOBODYS, [REMOVE, CLAIM_IT]),
        ("Retain", HELD, STAYS, OTHERS, [REMOVE]),
        ("Retain", HELD, GOES, [CLAIM, *NOBODYS, *OTHERS], [REMOVE]),
        ("Delete", FREE, STAYS, [CLAIM], [ADD]),
        ("Delete", FREE, STAYS, NOBODYS, [ADD, CLAIM_IT]),
        ("Delete", FREE, STAYS, OTHERS, []),
        ("Delete", FREE, GOES, [CLAIM, *NOBODYS, *OTHERS], []),
        ("Delete", HELD, STAYS, [CLAIM], []),
        ("Delete", HELD, STAYS, NOBODYS, [CLAIM_IT]),
        ("Delete", HELD, STAYS, OTHERS, []),
        ("Delete", HELD, GOES, [CLAIM], [DELETE, REMOVE]),
        ("Delete", HELD, GOES, [*NOBODYS, *OTHERS], [REMOVE]),
    ],
)
def test_only_a_stream_that_deletes_its_records_has_a_finalizer(
    policy: str, finalized: bool, deleting: bool, owners: list[str], actions: list[type]
) -> None:
    one = stream_object(deletionPolicy=policy, finalized=finalized, deleting=deleting)
    other = stream_object("other", streamName="something-else")

    for owner in owners:
        assert kinds(decided(one, Brokers(3, stream(owner=owner)), other)) == actions, owner


@pytest.mark.parametrize(
    ("policy", "finalized", "deleting", "actions"),
    [
        ("Retain", FREE, STAYS, [do.CreateStream]),
        ("Retain", HELD, STAYS, [REMOVE, do.CreateStream]),
        ("Retain", FREE, GOES, []),
        ("Retain", HELD, GOES, [REMOVE]),
        ("Delete", FREE, STAYS, [ADD, do.CreateStream]),
        ("Delete", HELD, STAYS, [do.CreateStream]),
        ("Delete", FREE, GOES, []),
        ("Delete", HELD, GOES, [REMOVE]),
    ],
)
def test_finalizers_are_the_same_before_the_stream_exists(
    policy: str, finalized: bool, deleting: bool, actions: list[type]
) -> None:
    one = stream_object(deletionPolicy=policy, finalized=finalized, deleting=deleting)

    assert kinds(decided(one, Brokers(3))) == actions


@pytest.mark.parametrize("spec", [{"replicationFactor": 5}, {"segments": {"bytes": "1Ki", "age": "7d"}}])
def test_a_problem_of_a_stream_does_not_affect_its_finalizer(
    spec: dict[str, Any],
) -> None:
    brokers = Brokers(3, stream(owner=CLAIM))

    waiting_reason = decided(stream_object(deletionPolicy="Delete", finalized=False, **spec), brokers)
    goes = decided(stream_object(finalized=True, **spec), brokers)

    assert (kinds(waiting_reason), kinds(goes)) == ([ADD], [REMOVE])
    assert waiting_reason.finding is not None
    assert waiting_reason.finding == goes.finding
    assert kinds(decided(stream_object(deletionPolicy="Delete", finalized=False, **spec), Brokers(3))) == []


def test_a_stream_is_deleted_with_the_observed_version() -> None:
    before = stream(owner=CLAIM)

    decision = decided(stream_object(deleting=True, deletionPolicy="Delete"), Brokers(3, before))

    assert decision.actions[0] == do.DeleteStream(KEY, "orders", before.stream_id, 7)


OLDER = [
    stream_object("a", deleting=True, finalized=True),
    stream_object("b", finalized=True),
    stream_object("c", deleting=True, finalized=True, cluster="other"),
    stream_object("d", deleting=True),
    stream_object("e", deleting=True, deletionPolicy="Delete"),
    stream_object("f", deletionPolicy="Delete"),
    replace(stream_object("g", finalized=True), unreadable="it is of another version"),
    replace(stream_object("h", deleting=True, finalized=True), unreadable="it is of another version"),
]


@pytest.mark.parametrize(
    ("plan", "released"), [(plan_without_cluster, "abeh"), (plan_without_brokers, "abh")]
)
def test_finalizers_that_need_no_broker_are_removed_without_brokers(
    plan: Callable[[Sequence[StreamObject], str], list[Decision]], released: str
) -> None:
    decisions = plan(OLDER, CLUSTER)

    keys = [ObjectKey("shop", name) for name in released]
    assert [one.actions for one in decisions] == [(do.RemoveFinalizer("Stream", key),) for key in keys]


# --- streams of deleted objects

GONE = "kubernetes:shop/gone/uid-of-gone"


def retained(brokers: Brokers, *objects: StreamObject) -> tuple[do.RetainStream, ...]:
    view = brokers.view()
    return plan_retained(objects, NAMESPACE, view, plan_streams(objects, CLUSTER, view))


def test_the_stream_of_a_deleted_object_stays_with_its_former_owner() -> None:
    before = stream(owner=GONE)

    (found,) = retained(Brokers(3, before), stream_object("another"))

    claim = StreamClaim(ObjectKey("shop", "gone"), "uid-of-gone")
    assert found == do.RetainStream(claim, "orders", before.stream_id, 7, "retained:shop/gone")


@pytest.mark.parametrize(
    ("owner", "objects"),
    [
        (GONE, [stream_object("gone")]),
        (GONE, [stream_object("gone", deleting=True)]),
        (GONE, [stream_object("gone", cluster="other")]),
        (GONE, [replace(stream_object("gone"), unreadable="it is of another version")]),
        # Another object adopts it.
        (GONE, [stream_object("heir", streamName="orders")]),
        (GONE, [stream_object("gone", uid="another", streamName="orders")]),
        ("kubernetes:elsewhere/gone/uid-of-gone", []),
        ("kubernetes:shop/gone", []),
        ("kubernetes:shop/gone/by/hand", []),
        ("retained:shop/gone", []),
        ("terraform", []),
        ("", []),
    ],
)
def test_streams_with_other_owners_or_none_are_not_retained(owner: str, objects: list[StreamObject]) -> None:
    assert retained(Brokers(3, stream(owner=owner)), *objects) == ()


def test_a_stream_that_its_successor_cannot_adopt_is_retained() -> None:
    heir = stream_object(
        "heir", streamName="orders", replicationFactor=5, segments={"bytes": "1Ki", "age": "7d"}
    )

    assert len(retained(Brokers(3, stream(owner=GONE)), heir)) == 1


def test_many_streams_are_retained_in_several_passes() -> None:
    brokers = Brokers(
        3, *(stream(f"s{number}", owner=f"kubernetes:shop/s{number}/1") for number in range(120))
    )

    assert len(retained(brokers)) == RETAINED_AT_ONCE_MAX
    settle([], brokers)

    assert {one.owner.partition(":")[0] for one in brokers.streams.values()} == {"retained"}


# --- objects of another version


def test_the_stream_of_an_unreadable_object_stays_claimed_and_unchanged() -> None:
    mine, other = stream_object("mine", streamName="orders"), stream_object("other", streamName="orders")
    brokers = Brokers(3, stream("orders", owner=mine.claim))
    unreadable = replace(mine, unreadable="it is of another version")

    decisions = plan_streams([other, unreadable], CLUSTER, brokers.view())

    found = {one.object.key.name: one for one in decisions}
    assert [one.actions for one in decisions] == [(), ()]
    assert found["mine"].finding == Finding(Reason.INVALID, "it is of another version")
    assert found["other"].finding is not None
    assert found["other"].finding.reason is Reason.CONFLICT


@pytest.mark.parametrize("finalized", [True, False])
def test_an_unreadable_object_keeps_its_finalizer_and_can_be_deleted(finalized: bool) -> None:
    """Only a newer operator knows what its policy means."""
    stays = replace(stream_object(finalized=finalized), unreadable="it is of another version")
    goes = replace(stays, deleting=True)
    brokers = Brokers(3, stream("orders", owner=stays.claim))

    assert settle([stays], brokers) == [stays]
    assert settle([goes], brokers) == []

    assert brokers.streams["orders"].owner == "retained:shop/orders"


def test_an_unreadable_object_with_policy_delete_deletes_its_records() -> None:
    one = stream_object(deletionPolicy="Delete", deleting=True, retention={"age": "for ever"})
    brokers = Brokers(3, stream("orders", owner=one.claim))

    assert one.unreadable
    assert settle([one], brokers) == []

    assert brokers.streams == {}
