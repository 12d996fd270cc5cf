"""R14: what a broken or silent connection proves, and what it does not."""

from __future__ import annotations

from tidelog_broker.peers.connection import STALL_SECONDS
from tidelog_broker.peers.watch import SILENCE_SECONDS_MAX, Evidence, Watch


def test_a_broker_that_was_never_there_is_nothing_to_report() -> None:
    watch = Watch(0.0)
    watch.refused()
    assert watch.evidence is None
    watch.unreachable()
    assert watch.evidence is None


def test_a_refused_redial_is_evidence_until_it_is_connected_again() -> None:
    watch = Watch(0.0)
    watch.connected(1.0)
    watch.refused()
    assert watch.evidence is Evidence.REFUSED
    watch.refused()
    assert watch.evidence is Evidence.REFUSED
    watch.connected(2.0)
    assert watch.evidence is None


def test_a_redial_that_comes_to_nothing_is_a_reset_and_a_later_refusal_is_more() -> None:
    watch = Watch(0.0)
    watch.connected(1.0)
    watch.unreachable()
    assert watch.evidence is Evidence.RESET
    watch.unreachable()
    assert watch.evidence is Evidence.RESET
    watch.refused()
    assert watch.evidence is Evidence.REFUSED


def look_every_tenth(watch: Watch, heard: float, start: float, end: float) -> float | None:
    """When silence became evidence."""
    now = start
    while now < end:
        watch.look(heard, now)
        if watch.evidence is Evidence.SILENT:
            return now
        now = round(now + 0.1, 3)
    return None


def test_silence_is_evidence_after_half_a_second_and_ends_with_a_word() -> None:
    watch = Watch(0.0)
    watch.connected(0.0)
    at = look_every_tenth(watch, heard=0.2, start=0.1, end=5.0)
    assert at is not None
    assert SILENCE_SECONDS_MAX <= at - 0.2 <= SILENCE_SECONDS_MAX + 0.2
    watch.look(heard=at, now=at + 0.1)
    assert watch.evidence is None


def test_who_slept_itself_listens_for_a_while_before_it_blames_others() -> None:
    watch = Watch(0.0)
    watch.connected(0.0)
    watch.look(heard=0.1, now=0.1)
    woke = 0.1 + 10 * STALL_SECONDS
    watch.look(heard=0.1, now=woke)
    assert watch.evidence is None
    at = look_every_tenth(watch, heard=0.1, start=round(woke + 0.1, 3), end=woke + 5)
    assert at is not None
    assert at - woke >= SILENCE_SECONDS_MAX


def test_a_connection_given_up_for_silence_is_no_reset_but_a_refusal_counts() -> None:
    watch = Watch(0.0)
    watch.connected(1.0)
    watch.ended(3.1, silent=True)
    watch.unreachable()
    assert watch.evidence is Evidence.SILENT
    watch.refused()
    assert watch.evidence is Evidence.REFUSED


def test_a_broker_that_slept_has_evidence_only_against_brokers_that_refuse() -> None:
    watch = Watch(0.0)
    watch.connected(0.0)
    watch.look(0.1, 0.1)
    watch.ended(0.1 + 10 * STALL_SECONDS, silent=False)
    watch.unreachable()
    assert watch.evidence is None
    watch.refused()
    assert watch.evidence is Evidence.REFUSED
    watch.connected(5.0)
    watch.ended(5.0, silent=False)
    watch.unreachable()
    assert watch.evidence is Evidence.RESET
