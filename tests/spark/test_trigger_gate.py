from __future__ import annotations

from tidelog_spark.trigger_gate import TriggerGate


def test_without_a_smallest_number_every_trigger_begins() -> None:
    gate = TriggerGate(None, 900)
    assert [gate.opens(unread, 0) for unread in (0, 1, 100)] == [True] * 3


def test_a_trigger_waits_for_enough_offsets_and_the_first_one_does_not() -> None:
    gate = TriggerGate(10, 900)
    assert [gate.opens(unread, now) for now, unread in enumerate((1, 9, 10, 9))] == [True, False, True, False]


def test_after_the_longest_delay_a_single_offset_is_enough() -> None:
    gate = TriggerGate(10, 900)
    assert gate.opens(1, 0)
    assert not gate.opens(1, 899.9)
    assert gate.opens(1, 900)
    assert not gate.opens(1, 1799.9)


def test_nothing_unread_never_begins_a_trigger_and_does_not_restart_the_delay() -> None:
    gate = TriggerGate(10, 900)
    assert gate.opens(10, 0)
    assert not gate.opens(0, 2000)
    assert gate.opens(1, 2001)
