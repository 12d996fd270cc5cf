"""R3, against a slow twin that states it record by record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.core.replication.high_watermark import high_watermark

offsets = st.integers(0, 20)


@given(offsets, offsets, st.lists(offsets, max_size=4), st.integers(0, 5), st.integers(1, 5))
def test_it_is_the_first_offset_not_durable_on_every_member_of_the_maximal_isr(
    current: int, leader: int, others: list[int], committed: int, minimum: int
) -> None:
    def committed_now(offset: int) -> bool:
        return committed >= minimum and all(offset < durable for durable in [leader, *others])

    expected = current
    while committed_now(expected):
        expected += 1

    found = high_watermark(
        current,
        leader_durable=leader,
        maximal_isr_durable=others,
        committed_isr_size=committed,
        min_insync_effective=minimum,
    )

    assert found == expected


def test_alone_it_follows_what_is_on_the_leaders_disk() -> None:
    assert (
        high_watermark(
            3, leader_durable=9, maximal_isr_durable=(), committed_isr_size=1, min_insync_effective=1
        )
        == 9
    )


def test_it_waits_for_a_member_that_is_only_about_to_join() -> None:
    assert (
        high_watermark(
            3, leader_durable=9, maximal_isr_durable=(5,), committed_isr_size=1, min_insync_effective=1
        )
        == 5
    )


def test_it_stands_still_while_the_committed_isr_is_too_small() -> None:
    assert (
        high_watermark(
            3, leader_durable=9, maximal_isr_durable=(9,), committed_isr_size=1, min_insync_effective=2
        )
        == 3
    )


def test_it_never_goes_back() -> None:
    assert (
        high_watermark(
            7, leader_durable=9, maximal_isr_durable=(2,), committed_isr_size=2, min_insync_effective=2
        )
        == 7
    )
