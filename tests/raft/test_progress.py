"""What a leader believes of a peer: probing, sending on, waiting for an image."""

from __future__ import annotations

from tidelog_broker.core.raft.progress import INFLIGHT_MESSAGES_MAX, SNAPSHOT_PATIENCE, Mode, Progress


def replicating(match: int) -> Progress:
    progress = Progress(match + 1)
    progress.acknowledged(match)
    return progress


def test_a_probe_is_sent_once_until_an_answer_or_a_heartbeats_answer() -> None:
    progress = Progress(10)

    progress.sent(12, empty=False)

    assert (progress.paused, progress.next) == (True, 10)
    progress.alive()
    assert not progress.paused


def test_a_rejected_probe_goes_back_at_least_one_and_never_into_what_is_known() -> None:
    progress = Progress(10)
    assert progress.rejected(9, hint=30)
    assert progress.next == 9
    assert progress.rejected(8, hint=3)
    assert progress.next == 4
    assert not progress.rejected(8, hint=1), "an old answer"
    progress.acknowledged(3)
    progress.lost()

    assert progress.rejected(3, hint=0)
    assert progress.next == 4


def test_a_peer_whose_place_is_known_is_sent_on_up_to_the_bound() -> None:
    progress = replicating(5)
    sent = 0
    while not progress.paused:
        sent += 1
        progress.sent(5 + sent, empty=False)

    assert sent == INFLIGHT_MESSAGES_MAX
    assert progress.next == 6 + sent
    progress.acknowledged(7)
    assert not progress.paused


def test_a_full_window_gets_one_more_message_with_each_heartbeats_answer() -> None:
    progress = replicating(5)
    for at in range(INFLIGHT_MESSAGES_MAX):
        progress.sent(6 + at, empty=False)

    progress.alive()

    assert not progress.paused


def test_a_rejection_while_sending_on_goes_back_to_what_is_known() -> None:
    progress = replicating(5)
    progress.sent(8, empty=False)
    progress.sent(9, empty=False)

    assert progress.rejected(8, hint=7)

    assert (progress.mode, progress.next, list(progress.inflight)) == (Mode.PROBE, 6, [])


def test_a_rejection_of_what_was_acknowledged_since_is_old() -> None:
    progress = replicating(9)

    assert not progress.rejected(8, hint=2)
    assert (progress.mode, progress.next) == (Mode.REPLICATE, 10)


def test_an_image_on_its_way_pauses_until_it_is_confirmed() -> None:
    progress = replicating(5)
    progress.begin_snapshot(20)

    progress.acknowledged(7)
    assert progress.paused
    assert not progress.rejected(5, hint=0)
    progress.acknowledged(20)

    assert (progress.mode, progress.next, progress.paused) == (Mode.REPLICATE, 21, False)


def test_an_image_that_is_never_confirmed_is_sent_again_after_a_while() -> None:
    progress = replicating(5)
    progress.begin_snapshot(20)
    for _ in range(SNAPSHOT_PATIENCE - 1):
        progress.waited()
    assert progress.mode is Mode.SNAPSHOT

    progress.waited()

    assert (progress.mode, progress.next) == (Mode.PROBE, 6)


def test_what_was_on_a_broken_connection_is_sent_again() -> None:
    progress = replicating(5)
    progress.sent(8, empty=False)

    progress.lost()

    assert (progress.mode, progress.next, progress.paused) == (Mode.PROBE, 6, False)
