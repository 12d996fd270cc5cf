"""The plan of Streams: a table of situations, and the same result wherever the operator is killed."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from support.kube.decisions import CLAIM, KEY, decided, kinds
from support.kube.situations import (
    CLUSTER,
    Brokers,
    settle,
    stream,
    stream_object,
    with_finalizers,
)
from tidelog.model import Durability, PartitionVersion, Retention, StreamSettings
from tidelog_operator import actions as do
from tidelog_operator.model import read_claim
from tidelog_operator.plan.streams import (
    Reason,
    plan_streams,
)

# --- creation


def test_a_missing_stream_is_created_on_the_chosen_brokers() -> None:
    (create,) = decided(stream_object(partitions=3, replicationFactor=3), Brokers(3)).actions

    assert isinstance(create, do.CreateStream)
    assert (create.object, create.name, create.owner) == (KEY, "orders", CLAIM)
    assert {members[0] for members in create.replicas} == {0, 1, 2}
    assert all(set(members) == {0, 1, 2} for members in create.replicas)


def test_its_settings_are_those_of_the_manifest() -> None:
    spec: dict[str, Any] = {
        "subject": "orders.>",
        "partitions": 2,
        "replicationFactor": 1,
        "durability": "page-cache",
        "retention": {"age": "1h30m", "bytes": "1.5Gi"},
        "segments": {"bytes": "64Mi", "age": "12h"},
        "limits": {"batchBytes": 65536, "timestampAhead": "500ms"},
        "dedupe": {"window": "0s", "count": 0},
        "nats": {"ack": "Never"},
    }

    (create,) = decided(stream_object(**spec), Brokers(3)).actions

    assert isinstance(create, do.CreateStream)
    assert create.settings == StreamSettings(
        subject="orders.>",
        partitions=2,
        replication_factor=1,
        min_insync_replicas=1,
        durability=Durability.PAGE_CACHE,
        retention=Retention(age_ms=5_400_000, bytes=3 << 29),
        segment_bytes=64 << 20,
        segment_age_ms=12 * 3_600_000,
        batch_bytes_max=65536,
        timestamp_ahead_ms_max=500,
        nats_ack="never",  # type: ignore[arg-type]
        dedupe_window_ms=0,
        dedupe_count_max=0,
    )


@pytest.mark.parametrize(
    ("brokers", "factor"), [(Brokers(1), 1), (Brokers(2), 2), (Brokers(3), 3), (Brokers(9), 3)]
)
def test_the_default_is_three_replicas_or_as_many_as_brokers(brokers: Brokers, factor: int) -> None:
    (create,) = decided(stream_object(), brokers).actions

    assert isinstance(create, do.CreateStream)
    assert (len(create.replicas[0]), create.settings.replication_factor) == (factor, factor)


def test_with_one_replica_the_minimum_is_one_until_there_are_more() -> None:
    one, brokers = stream_object(minInsyncReplicas=2), Brokers(1)

    settle([one], brokers)
    made = brokers.streams["orders"]
    assert made.config.min_insync_replicas == 1

    more = stream(owner=made.owner, replicas=((0, 1, 2),), min_insync_replicas=1)
    (alter,) = decided(one, Brokers(3, more)).actions
    assert isinstance(alter, do.AlterStream)
    assert alter.settings == StreamSettings(min_insync_replicas=2)


def test_many_streams_at_once_are_spread_like_single_ones() -> None:
    objects = [stream_object(f"s{number}", partitions=2, replicationFactor=2) for number in range(30)]

    decisions = plan_streams(objects, CLUSTER, Brokers(5).view())

    creates = [action for one in decisions for action in one.actions if isinstance(action, do.CreateStream)]
    replicas = Counter(broker for one in creates for members in one.replicas for broker in members)
    leaders = Counter(members[0] for one in creates for members in one.replicas)
    assert set(replicas.values()) == {24}
    assert set(leaders.values()) == {12}


def test_replicas_are_in_as_many_zones_as_possible() -> None:
    brokers = Brokers(6, zones={0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"})

    (create,) = decided(stream_object(partitions=12, replicationFactor=3), brokers).actions

    assert isinstance(create, do.CreateStream)
    for members in create.replicas:
        assert len({brokers.zones[member] for member in members}) == 3


@pytest.mark.parametrize(
    ("brokers", "factor", "sentence"),
    [
        (Brokers(2), 3, "3 replicas of each partition need 3 brokers, but only 2 can take replicas now"),
        (Brokers(3, states={1: "fenced"}), 3, "but only 2 can take replicas now"),
        (Brokers(3, states={1: "fenced"}), None, "but only 2 can take replicas now"),
        (Brokers(4, states={1: "cordoned", 2: "stopping"}), 3, "but only 2 can take replicas now"),
    ],
)
def test_a_stream_waits_for_the_brokers_that_it_needs(
    brokers: Brokers, factor: int | None, sentence: str
) -> None:
    spec: dict[str, Any] = {"replicationFactor": factor} if factor else {}
    decision = decided(stream_object(**spec), brokers)

    assert decision.actions == ()
    assert decision.finding is not None
    assert decision.finding.reason is Reason.WAITING
    assert sentence in decision.finding.message


def test_impossible_settings_are_reported_and_not_tried() -> None:
    decision = decided(stream_object(segments={"bytes": "1Ki", "age": "7d"}), Brokers(3))

    assert decision.actions == ()
    assert decision.finding is not None
    assert decision.finding.reason is Reason.INVALID
    assert "segment_bytes is 1024; it must lie in" in decision.finding.message


# --- desired state


@pytest.mark.parametrize("owner", [CLAIM])
def test_nothing_is_planned_for_a_stream_in_its_desired_state(owner: str) -> None:
    decision = decided(stream_object(replicationFactor=3), Brokers(3, stream(owner=owner)))

    assert (decision.actions, decision.finding) == ((), None)


# --- adoption


@pytest.mark.parametrize(
    "owner", ["", "retained:shop/former", "kubernetes:shop/orders/uid-of-one-that-is-no-more"]
)
def test_a_stream_without_an_owner_is_adopted_unchanged(owner: str) -> None:
    brokers = Brokers(3, stream(owner=owner))

    decision = decided(stream_object(), brokers)

    former = read_claim(owner)
    assert decision.actions == (
        do.AlterStream(KEY, "orders", b"orders----------", 7, owner=CLAIM, former=former),
    )


def test_a_stream_claimed_from_another_namespace_is_adopted() -> None:
    (alter,) = decided(stream_object(), Brokers(3, stream(owner="kubernetes:former/orders/1"))).actions

    assert alter == do.AlterStream(KEY, "orders", b"orders----------", 7, owner=CLAIM)


def test_an_adopted_stream_gets_the_settings_of_the_object() -> None:
    before = stream(owner="retained:shop/orders", replicas=((2, 0), (0, 1)), subject="old")

    (alter,) = decided(stream_object(partitions=2, subject="new.>"), Brokers(3, before)).actions

    assert isinstance(alter, do.AlterStream)
    assert (alter.owner, alter.settings) == (CLAIM, StreamSettings(subject="new.>"))


def test_a_stream_with_more_partitions_than_the_object_is_not_adopted() -> None:
    decision = decided(stream_object(partitions=1), Brokers(3, stream(replicas=((0,), (1,)))))

    assert decision.actions == ()
    assert decision.finding is not None
    assert decision.finding.reason is Reason.INVALID
    assert "has 2 partitions, but this Stream asks for 1" in decision.finding.message


@pytest.mark.parametrize("owner", ["kubernetes:shop/other/uid-of-other", "terraform"])
def test_a_stream_with_another_owner_is_not_changed(owner: str) -> None:
    other = stream_object("other", streamName="something-else")

    decision = decided(stream_object(), Brokers(3, stream(owner=owner)), other)

    assert decision.actions == ()
    assert decision.finding is not None
    assert decision.finding.reason is Reason.CONFLICT
    assert owner in decision.finding.message


def test_the_older_of_two_objects_gets_the_stream_the_other_a_conflict() -> None:
    older = stream_object("older", streamName="orders", created=1)
    younger = stream_object("younger", streamName="orders", created=2)

    first, second = decided(older, Brokers(3), younger), decided(younger, Brokers(3), older)

    assert kinds(first) == [do.CreateStream]
    assert second.actions == ()
    assert second.finding is not None
    assert second.finding.reason is Reason.CONFLICT
    assert "belongs to the Stream older" in second.finding.message


def test_of_two_objects_of_the_same_second_the_owner_keeps_the_stream() -> None:
    mine = stream_object("mine", uid="z", streamName="orders")
    yours = stream_object("yours", uid="a", streamName="orders")
    brokers = Brokers(3, stream(owner=mine.claim, replicas=((0, 1, 2),)))

    assert decided(mine, brokers, yours).finding is None
    finding = decided(yours, brokers, mine).finding
    assert finding is not None
    assert "belongs to the Stream mine" in finding.message


def test_the_younger_object_adopts_the_stream_after_the_older_is_deleted() -> None:
    older = stream_object("older", streamName="orders", created=1, deleting=True, finalized=True)
    younger = stream_object("younger", streamName="orders", created=2)
    brokers = Brokers(3, stream(owner=older.claim))
    assert decided(younger, brokers, older).finding is not None

    left = settle([older, younger], brokers)

    assert [one.key.name for one in left] == ["younger"]
    assert brokers.streams["orders"].owner == younger.claim
    assert brokers.streams["orders"].stream_id == b"orders----------"


# --- changes


def test_settings_change_with_the_observed_version() -> None:
    before = stream(owner=CLAIM, subject="a")

    (alter,) = decided(stream_object(subject="b", retention={}), Brokers(3, before)).actions

    assert alter == do.AlterStream(
        KEY, "orders", before.stream_id, 7, StreamSettings(subject="b", retention=Retention())
    )


def test_new_partitions_are_placed_on_the_least_loaded_brokers() -> None:
    before = stream(owner=CLAIM, replicas=((0, 1), (1, 0)), min_insync_replicas=2)

    (alter,) = decided(stream_object(partitions=4), Brokers(4, before)).actions

    assert isinstance(alter, do.AlterStream)
    assert alter.settings == StreamSettings(partitions=4)
    assert [set(members) for members in alter.new_replicas] == [{2, 3}, {2, 3}]
    assert {members[0] for members in alter.new_replicas} == {2, 3}


def test_replicas_are_added_and_preferred_leaders_stay() -> None:
    before = stream(owner=CLAIM, replicas=((0, 1), (2, 3)))

    (reassign,) = decided(stream_object(partitions=2, replicationFactor=3), Brokers(5, before)).actions

    assert isinstance(reassign, do.Reassign)
    assert [(move.partition, move.replicas[:2]) for move in reassign.moves] == [(0, (0, 1)), (1, (2, 3))]
    assert all(len(set(move.replicas)) == 3 for move in reassign.moves)


def test_replicas_that_are_behind_are_removed_first() -> None:
    before = stream(owner=CLAIM, replicas=((0, 1, 2),))
    (partition,) = before.partitions
    lagging = replace(before, partitions=(replace(partition, isr=(0, 2)),))

    (reassign,) = decided(stream_object(replicationFactor=2), Brokers(3, lagging)).actions

    assert isinstance(reassign, do.Reassign)
    assert reassign.moves == (
        do.MovePartition("orders", 0, (0, 2), PartitionVersion(b"orders----------", 0)),
    )


def test_running_moves_are_not_planned_again() -> None:
    before = stream(owner=CLAIM, replicas=((0, 1),))
    (partition,) = before.partitions
    on_its_way = replace(before, partitions=(replace(partition, replicas=(0, 1, 2), adding=(2,)),))

    assert decided(stream_object(replicationFactor=3), Brokers(3, on_its_way)).actions == ()


# --- crashes


LIVES = {
    "made": ([stream_object(partitions=3)], []),
    "made to be deleted": ([stream_object(deletionPolicy="Delete", finalized=False)], []),
    "made twice": (
        [stream_object(partitions=3), stream_object("again", streamName="orders", created=1)],
        [],
    ),
    "adopted and changed": (
        [stream_object(partitions=3, replicationFactor=3, subject="a.>", finalized=True)],
        [stream(owner="retained:shop/orders", replicas=((0, 1), (1, 2)))],
    ),
    "fewer copies": ([stream_object(replicationFactor=1)], [stream(owner=CLAIM)]),
    "let go": ([stream_object(deleting=True)], [stream(owner=CLAIM)]),
    "let go by an earlier operator": ([stream_object(deleting=True, finalized=True)], [stream(owner=CLAIM)]),
    "to be kept": ([stream_object(finalized=True, subject="a.>")], [stream(owner=CLAIM)]),
    "not to be kept": (
        [stream_object(deletionPolicy="Delete", finalized=False, subject="a.>")],
        [stream(owner=CLAIM)],
    ),
    "deleted": ([stream_object(deleting=True, deletionPolicy="Delete")], [stream(owner=CLAIM)]),
    "handed on": (
        [
            stream_object("older", streamName="orders", deleting=True, finalized=True),
            stream_object("younger", streamName="orders", created=1),
        ],
        [stream(owner="kubernetes:shop/older/uid-of-older")],
    ),
}


@pytest.mark.parametrize("life", LIVES)
def test_wherever_the_operator_is_killed_the_end_is_the_same(life: str) -> None:
    objects, streams = LIVES[life]
    whole = Brokers(3, *streams)
    end = settle(objects, whole)
    assert whole.streams or life == "deleted"

    for crash_at in range(10):
        brokers = Brokers(3, *streams)
        assert settle(objects, brokers, crash_at=crash_at) == end, crash_at
        assert brokers.streams == whole.streams, crash_at


def test_two_operators_at_once_do_no_harm() -> None:
    """Both plan with the same view; the version rejects the actions of the slower one."""
    objects = [stream_object(subject="a.>", deletionPolicy="Delete", finalized=False)]
    brokers = Brokers(3, stream(owner="retained:shop/orders"))
    view = copy.deepcopy(brokers.view())
    (decision,) = plan_streams(objects, CLUSTER, view)
    for action in decision.actions:
        brokers.do(action)

    with pytest.raises(AssertionError):
        brokers.do(decision.actions[-1])

    assert plan_streams(with_finalizers(objects, brokers), CLUSTER, brokers.view())[0].actions == ()
