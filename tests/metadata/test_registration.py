"""R10, R6: what a broker says when it has started, and when it is refused."""

from __future__ import annotations

import pytest

from metadata.samples import CLUSTER, LISTENERS, applied, created, identifier, quorum_cluster, registered
from tidelog.errors import InvalidRequest, Unavailable, UnsupportedVersion, VersionConflict
from tidelog_broker.core.metadata.commands import (
    FEATURE_LEVEL,
    ChangeBroker,
    PartitionChange,
    ReplicaName,
    Suspect,
    UnregisterBroker,
)
from tidelog_broker.core.metadata.controller import registration
from tidelog_broker.core.metadata.controller.liveness import SESSION_MS, Sessions
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.decisions import reassignment
from tidelog_broker.core.metadata.decisions.elections import elect_unclean
from tidelog_broker.core.metadata.image import ClusterImage

S = identifier(1)


def cluster() -> ClusterImage:
    """Each broker on a disk of its own."""
    image = quorum_cluster(0)
    return applied(image, [registered(broker, disk=broker + 1) for broker in range(3)])


def of(broker: int, run: int = 2, *, disk: int | None = None, **fields: object) -> Registration:
    said = Registration(
        CLUSTER, broker, identifier(1000 * broker + run), identifier(disk or broker + 1), LISTENERS
    )
    return said._replace(**fields)  # type: ignore[arg-type]


def alive(image: ClusterImage, now_ms: int = 0) -> Sessions:
    sessions = Sessions()
    for broker in image.brokers.values():
        sessions.heard(image, broker.id, broker.incarnation, now_ms)
    return sessions


def test_r10_a_registration_and_the_elections_that_follow_from_it_are_one_entry() -> None:
    image = applied(cluster(), [created(1, replicas=(0, 1, 2))])

    command = registration.register(image, of(0), alive(image), 10)

    assert command is not None
    assert command.changes == (PartitionChange(S, 0, leader=0),)
    after = applied(image, [command])
    assert (after.streams[S].partitions[0].leader, after.streams[S].partitions[0].leader_epoch) == (0, 2)
    assert after.brokers[0].incarnation == identifier(2)


def test_r6_what_a_broker_cannot_vouch_for_is_led_by_another_in_the_same_entry() -> None:
    image = applied(cluster(), [created(1, replicas=(0, 1, 2)), created(2, replicas=(0, 1, 2))])
    said = of(0, suspects=(Suspect(S, 0, 1, 5),), lost=(ReplicaName(identifier(2), 0),))

    command = registration.register(image, said, alive(image), 10)

    assert command is not None
    after = applied(image, [command])
    assert [stream.partitions[0].leader for stream in after.streams.values()] == [1, 1]
    assert [stream.partitions[0].isr for stream in after.streams.values()] == [(1, 2), (1, 2)]


def test_r6_the_only_copy_leads_although_it_is_suspect_and_the_epoch_says_so() -> None:
    image = applied(cluster(), [created(1, replicas=(0,))])

    command = registration.register(image, of(0, suspects=(Suspect(S, 0, 1, 5),)), alive(image), 10)

    assert command is not None
    after = applied(image, [command]).streams[S].partitions[0]
    assert (after.leader, after.unclean) == (0, True)


def test_a_run_that_is_registered_already_changes_nothing_unless_it_was_fenced() -> None:
    image = cluster()
    fenced = applied(image, [ChangeBroker(0, fenced=True)])

    assert registration.register(image, of(0, run=1), alive(image), 10) is None
    command = registration.register(fenced, of(0, run=1), alive(image), 10)
    assert command is not None
    assert not applied(fenced, [command]).brokers[0].fenced


def test_a_new_address_of_the_same_run_is_written_down() -> None:
    assert registration.register(cluster(), of(0, run=1, rack="b"), Sessions(), 0) is not None


def test_a_broker_of_another_cluster_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="check the addresses and the data directory"):
        registration.register(cluster(), of(0, cluster_id=b"x" * 16), Sessions(), 0)


@pytest.mark.parametrize(
    ("levels", "advice"), [((FEATURE_LEVEL + 1, FEATURE_LEVEL + 2), "an earlier"), ((0, 0), "a later")]
)
def test_software_that_does_not_know_the_clusters_level_is_refused(
    levels: tuple[int, int], advice: str
) -> None:
    said = of(0, feature_level_min=levels[0], feature_level_max=levels[1])

    with pytest.raises(UnsupportedVersion, match=f"run {advice} version"):
        registration.register(cluster(), said, Sessions(), 0)


def test_another_disk_with_a_live_brokers_id_waits_until_the_session_has_ended() -> None:
    image = cluster()
    sessions = alive(image)

    with pytest.raises(Unavailable, match="broker 0 is alive with another data directory"):
        registration.register(image, of(0, disk=99), sessions, SESSION_MS - 1)
    assert registration.register(image, of(0, disk=99), sessions, SESSION_MS) is not None


def test_the_disk_of_one_broker_is_refused_under_the_id_of_another() -> None:
    with pytest.raises(InvalidRequest, match="belongs to broker 1; broker 7 needs its own data directory"):
        registration.register(cluster(), of(7, disk=2), Sessions(), 0)


def test_r10_the_count_of_starts_shows_a_late_registration_of_an_earlier_run() -> None:
    image = cluster()
    newer = registration.register(image, of(0, run=3, starts=3), Sessions(), 0)
    assert newer is not None
    image = applied(image, [newer])

    with pytest.raises(VersionConflict, match="registered start number 3"):
        registration.register(image, of(0, run=2, starts=2), Sessions(), 0)
    assert registration.register(image, of(0, run=4, starts=4), Sessions(), 0) is not None


def test_r19_another_run_with_the_registered_count_is_a_restored_directory() -> None:
    image = cluster()
    known = registration.register(image, of(0, run=3, starts=3), Sessions(), 0)
    assert known is not None
    image = applied(image, [known])

    with pytest.raises(VersionConflict, match="the directory was put back from a copy"):
        registration.register(image, of(0, run=4, starts=3), Sessions(), 0)
    assert registration.register(image, of(0, run=3, starts=3), Sessions(), 0) is None, "the same run again"
    emptied = registration.register(image, of(0, run=5, disk=99, starts=1), Sessions(), 0)
    assert emptied is not None, "an emptied directory counts from the beginning"


def test_a_live_broker_with_replicas_is_not_unregistered() -> None:
    image = applied(cluster(), [created(1, replicas=(0, 1, 2))])

    with pytest.raises(InvalidRequest, match="is alive and holds 1 replica; drain it or stop it first"):
        registration.unregister(image, 0, alive(image), 10)
    with pytest.raises(InvalidRequest, match="broker 9 is not registered"):
        registration.unregister(image, 9, alive(image), 10)


def test_r6_unregistering_a_broker_lets_the_others_be_elected_in_the_same_entry() -> None:
    image = applied(
        cluster(), [created(1, replicas=(0, 1, 2)), ChangeBroker(0, fenced=True), registered(1, 2, disk=2)]
    )

    command = registration.unregister(image, 0, Sessions(), 0)

    after = applied(image, [command])
    assert sorted(after.brokers) == [1, 2]
    assert after.streams[S].partitions[0].leader == 1


def test_a_log_lost_while_running_is_led_by_another_in_the_same_entry() -> None:
    image = applied(cluster(), [created(1, replicas=(0, 1, 2))])

    command = registration.lose(image, 0, identifier(1), (ReplicaName(S, 0),))

    after = applied(image, [command]).streams[S].partitions[0]
    assert (after.leader, after.isr) == (1, (1, 2))
    with pytest.raises(VersionConflict, match="is not the registered one"):
        registration.lose(image, 0, identifier(77), (ReplicaName(S, 0),))


def test_a_broker_that_was_to_be_empty_and_is_not_stays_also_when_it_is_away() -> None:
    image = applied(cluster(), [created(1, replicas=(0, 1, 2)), ChangeBroker(0, fenced=True)])

    with pytest.raises(InvalidRequest, match="holds 1 replica and must be empty; drain it first"):
        registration.unregister(image, 0, Sessions(), 0, only_if_empty=True)


def test_a_broker_of_which_something_was_said_or_that_is_another_one_stays() -> None:
    image = cluster()
    seen = image.brokers[2].version
    cordoned = applied(image, [ChangeBroker(2, cordoned=True)])
    again = applied(image, [UnregisterBroker(2), registered(2, disk=9)])

    assert registration.unregister(image, 2, alive(image), 10, only_if_empty=True, expected_version=seen)
    for other, version in ((cordoned, seen), (again, seen), (image, 0)):
        with pytest.raises(VersionConflict, match="broker 2 is at version"):
            registration.unregister(other, 2, alive(other), 10, expected_version=version)


def test_2c_the_only_replica_of_a_partition_stays_its_own_without_a_log() -> None:
    """Its broker tells of it all the same: only the controller knows that there is no other."""
    image = applied(cluster(), [created(1, replicas=(0,)), created(2, replicas=(0, 1))])
    lost = (ReplicaName(S, 0), ReplicaName(identifier(2), 0))

    command = registration.register(image, of(0, lost=lost), alive(image), 10)

    assert command is not None
    assert command.lost == (ReplicaName(identifier(2), 0),)
    assert applied(image, [command]).streams[S].partitions[0].isr == (0,)


def test_2c_a_lost_log_that_moves_away_leaves_the_isr_and_another_broker_can_lead() -> None:
    image = applied(cluster(), [created(1, replicas=(0,))])
    moving = applied(image, [c] if (c := reassignment.reassign(image, S, {0: (2,)})) else [])
    with pytest.raises(InvalidRequest, match="broker 0"):
        elect_unclean(moving, S, 0, 2)

    command = registration.register(moving, of(0, lost=(ReplicaName(S, 0),)), alive(moving), 10)

    restarted = applied(moving, [command] if command else [])
    assert restarted.streams[S].partitions[0].isr == ()
    elected = applied(restarted, [elect_unclean(restarted, S, 0, 2)]).streams[S].partitions[0]
    assert (elected.leader, elected.isr) == (2, (2,))
