"""Appends that wait for the high watermark, against a slow twin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.core.replication.commit_queue import CommitQueue

step = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 20), st.integers(1, 20)),
    st.tuples(st.just("advance"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("expire"), st.integers(0, 20), st.just(0)),
)


@given(st.lists(step, max_size=30))
def test_everyone_is_answered_once_in_order_and_by_the_first_thing_that_happens(
    steps: list[tuple[str, int, int]],
) -> None:
    queue: CommitQueue[int] = CommitQueue()
    waiting: list[tuple[int, int, int]] = []
    for number, (what, value, deadline) in enumerate(steps):
        match what:
            case "add":
                queue.add(value, number, deadline)
                waiting.append((value, deadline, number))
            case "advance":
                done = []
                while waiting and waiting[0][0] <= value:
                    done.append(waiting.pop(0)[2])
                assert queue.advance(value) == done
            case _:
                assert queue.expire(value) == [n for _, at, n in waiting if at <= value]
                waiting = [one for one in waiting if one[1] > value]
        assert len(queue) == len(waiting)
    assert queue.give_up() == [number for _, _, number in waiting]
    assert queue.give_up() == []


def test_an_append_without_a_deadline_waits_for_ever() -> None:
    queue: CommitQueue[str] = CommitQueue()
    queue.add(3, "a")

    assert queue.expire(1e18) == []
    assert repr(queue) == "<CommitQueue waiting=1 first end=3>"
