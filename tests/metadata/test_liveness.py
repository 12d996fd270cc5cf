"""M3: sessions are granted, earned and lost, and a controller that slept fences nobody for it."""

from __future__ import annotations

from metadata.samples import applied, identifier, quorum_cluster, registered
from tidelog_broker.core.metadata.commands import ChangeBroker, UnregisterBroker
from tidelog_broker.core.metadata.controller.liveness import HEARTBEAT_MS, SESSION_MS, Sessions
from tidelog_broker.core.metadata.image import ClusterImage


def ticking(sessions: Sessions, image: ClusterImage, start_ms: int, end_ms: int) -> None:
    for now in range(start_ms, end_ms + 1, 20):
        sessions.look(image, now)


def test_m3_a_new_controller_grants_everybody_a_whole_session() -> None:
    image, sessions = quorum_cluster(), Sessions()
    ticking(sessions, image, 10_000, 10_000 + SESSION_MS)

    assert sessions.expired(image, 10_000 + SESSION_MS - 1) == []
    assert sessions.expired(image, 10_000 + SESSION_MS) == [0, 1, 2]


def test_m3_a_heartbeat_begins_the_session_anew_and_the_longest_silent_come_first() -> None:
    image, sessions = quorum_cluster(), Sessions()
    sessions.look(image, 0)
    assert sessions.heard(image, 0, identifier(1), 300)
    assert sessions.heard(image, 1, identifier(1001), 100)

    assert sessions.expired(image, SESSION_MS) == [2]
    assert sessions.expired(image, SESSION_MS + 300) == [2, 1, 0]


def test_a_heartbeat_of_a_run_that_is_not_registered_counts_for_nothing() -> None:
    image, sessions = quorum_cluster(), Sessions()
    sessions.look(image, 0)

    assert not sessions.heard(image, 0, identifier(77), 1000)
    assert not sessions.heard(image, 9, identifier(77), 1000)
    assert sessions.expired(image, SESSION_MS) == [0, 1, 2]


def test_a_new_run_gets_a_session_of_its_own() -> None:
    image, sessions = quorum_cluster(), Sessions()
    sessions.look(image, 0)
    image = applied(image, [registered(0, 2), UnregisterBroker(2)])
    ticking(sessions, image, 20, SESSION_MS)

    assert sessions.expired(image, SESSION_MS) == [1]
    assert sessions.is_alive(image.brokers[0], SESSION_MS)


def test_a_controller_that_was_away_itself_gives_everybody_that_while() -> None:
    image, sessions = quorum_cluster(), Sessions()
    sessions.look(image, 0)
    sessions.look(image, 20)
    sessions.look(image, 60_000)

    assert sessions.expired(image, 60_000) == []
    assert sessions.expired(image, 60_000 + SESSION_MS) == [0, 1, 2]


def test_a_fenced_broker_has_returned_when_it_is_heard_again_in_the_same_run() -> None:
    image, sessions = applied(quorum_cluster(), [ChangeBroker(0, fenced=True)]), Sessions()
    sessions.look(image, 0)
    assert sessions.returned(image, 0) == []
    assert sessions.expired(image, 10 * SESSION_MS) == [1, 2]

    sessions.heard(image, 0, identifier(1), 30)

    assert sessions.returned(image, 40) == [0]
    assert sessions.returned(image, 40 + 2 * HEARTBEAT_MS) == []


def test_r14_two_missed_heartbeats_are_silence() -> None:
    image, sessions = quorum_cluster(), Sessions()
    sessions.heard(image, 0, identifier(1), 0)

    assert not sessions.is_silent(image.brokers[0], 2 * HEARTBEAT_MS)
    assert sessions.is_silent(image.brokers[0], 2 * HEARTBEAT_MS + 1)
    assert not sessions.is_silent(image.brokers[1], 2 * HEARTBEAT_MS + 1)
