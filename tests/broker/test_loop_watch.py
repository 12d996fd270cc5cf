"""The watch over the event loop: it counts beats, and says what a long turn was busy with."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from typing import Any

import pytest

from support.broker import BrokerProcess
from support.waiting import until
from tidelog_broker.limits import loop_watch
from tidelog_broker.limits.loop_watch import ALARM_SECONDS, Late, LoopWatch


class Said:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, text: str, **facts: Any) -> None:
        self.lines.append({"text": text, **facts})


def hog_the_loop(watch: LoopWatch) -> None:
    """Keeps the event loop until the watch has seen it."""
    deadline = time.monotonic() + 10
    while watch.seen is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def test_a_long_turn_is_told_with_what_the_loop_was_busy_with() -> None:
    late, said = list[Late](), Said()
    watch = LoopWatch(late.append, said)
    watch.start()
    try:
        hog_the_loop(watch)
        await until(lambda: bool(said.lines), "the turn is logged")
    finally:
        watch.stop()
    [line] = said.lines
    assert "hog_the_loop" in line["busy_with"]
    assert line["seconds"] >= ALARM_SECONDS
    assert 0 <= line["ran_at_most"] <= line["seconds"]
    assert 0 <= line["waited_for_a_processor_at_most"] <= line["seconds"]
    assert max(late).seconds >= ALARM_SECONDS


def compute(seconds: float) -> None:
    """Has the calling thread run for some time, by its own clock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_a_turn_that_computes_is_told_from_one_that_sleeps() -> None:
    late: list[Late] = []
    watch = LoopWatch(late.append, Said())
    watch.start()
    try:
        for hold, ran in ((time.sleep, False), (compute, True)):
            late.clear()
            hold(4 * ALARM_SECONDS)
            await until(lambda: bool(late), "the turn is seen")
            assert late[0].seconds >= ALARM_SECONDS
            assert (late[0].ran_max >= ALARM_SECONDS) == ran
    finally:
        watch.stop()


async def test_the_garbage_collector_is_told_from_the_code_that_it_stands_in() -> None:
    late: list[Late] = []
    watch = LoopWatch(late.append, Said())
    watch.start()
    try:
        late.clear()
        deadline = time.monotonic() + 4 * ALARM_SECONDS
        while time.monotonic() < deadline:
            gc.collect()
        await until(lambda: bool(late), "the turn is seen")
    finally:
        watch.stop()
    assert late[0].collected_max > late[0].seconds / 2


async def test_where_the_system_does_not_count_waiting_the_thread_s_own_clock_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_watch, "SCHEDSTAT", "/nowhere")
    times = loop_watch.Times()
    before, _, _ = times()
    compute(0.01)
    ran, waited, _ = times()
    assert ran - before >= 0.01
    assert waited == 0
    times.close()


async def test_lines_about_long_turns_are_few_and_the_next_says_how_many_were_left_out() -> None:
    late, said, now = list[Late](), Said(), [0.0]
    watch = LoopWatch(late.append, said, quiet_clock=lambda: now[0])

    def long_turns() -> int:
        return sum(one.seconds >= ALARM_SECONDS for one in late)

    watch.start()
    try:
        for at in (0.0, 1.0, 1.5, 100.0):
            now[0], watch.seen, before = at, None, long_turns()
            hog_the_loop(watch)
            await until(lambda before=before: long_turns() > before, "the turn is counted")  # type: ignore[misc]
    finally:
        watch.stop()
    assert len(said.lines) < long_turns()
    assert said.lines[0]["untold"] == 0
    assert said.lines[-1]["untold"] >= 2


async def test_beats_are_counted_and_end_with_the_watch() -> None:
    late: list[Late] = []
    watch = LoopWatch(late.append, Said())
    watch.start()
    await until(lambda: len(late) >= 3, "three turns are seen")
    watch.stop()
    count = len(late)
    assert min(late).seconds >= 0
    await asyncio.sleep(0.06)
    assert len(late) == count


def test_a_broker_shows_how_late_its_event_loop_was(broker: BrokerProcess) -> None:
    text = broker.get("/metrics")
    assert "tidelog_event_loop_late_seconds_count" in text
    assert "tidelog_event_loop_late_max_seconds" in text
    assert "tidelog_event_loop_ran_max_seconds" in text


FRAMES_UNDER_COLLECTION = """
import gc, sys, threading, time, weakref
from tidelog_broker.limits.loop_watch import frame_of

references = []
end = time.monotonic() + 0.5
main = threading.main_thread().ident

class Link:
    pass

def collected(_):
    # Callbacks in Python let other threads run.
    for _ in range(200):
        pass

def make_garbage(depth):
    one = Link()
    one.itself = one
    references.append(weakref.ref(one, collected))
    del references[:-1000]
    if depth:
        make_garbage(depth - 1)

def look():
    while time.monotonic() < end:
        make_garbage(3)
        assert frame_of(main) is not None

def begin_and_end():
    while time.monotonic() < end:
        make_garbage(5)
        thread = threading.Thread(target=make_garbage, args=(2,))
        thread.start()
        thread.join()

sys.setswitchinterval(1e-6)
gc.set_threshold(7, 1000, 1000)
threads = [threading.Thread(target=work) for work in (look, look, begin_and_end, begin_and_end)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert gc.isenabled()
print("done")
"""


def test_looking_at_a_thread_while_garbage_is_due_never_stops_the_process() -> None:
    """In a process of its own: an interpreter that has stopped does not see its time-out either."""
    done = subprocess.run(
        [sys.executable, "-c", FRAMES_UNDER_COLLECTION], capture_output=True, text=True, timeout=30
    )

    assert done.stdout == "done\n", done.stderr
