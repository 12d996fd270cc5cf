"""The watch over the event loop: it counts beats, and says what a long turn was busy with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from support.broker import BrokerProcess
from tidelog_broker.runtime.loop_watch import ALARM_SECONDS, LoopWatch


class Said:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, text: str, **facts: Any) -> None:
        self.lines.append({"text": text, **facts})


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def hog_the_loop(watch: LoopWatch) -> None:
    """Keeps the event loop until the watch has seen it."""
    deadline = time.monotonic() + 10
    while watch.seen is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def test_a_long_turn_is_told_with_what_the_loop_was_busy_with() -> None:
    late, said = list[float](), Said()
    watch = LoopWatch(late.append, said)
    watch.start()
    try:
        hog_the_loop(watch)
        await until(lambda: bool(said.lines))
    finally:
        watch.stop()
    [line] = said.lines
    assert "hog_the_loop" in line["busy_with"]
    assert line["seconds"] >= ALARM_SECONDS
    assert max(late) >= ALARM_SECONDS


async def test_lines_about_long_turns_are_few_and_the_next_says_how_many_were_left_out() -> None:
    late, said, now = list[float](), Said(), [0.0]
    watch = LoopWatch(late.append, said, quiet_clock=lambda: now[0])
    watch.start()
    try:
        for at, long_turns in ((0.0, 1), (1.0, 2), (1.5, 3), (100.0, 4)):
            now[0] = at
            watch.seen = None
            hog_the_loop(watch)
            await until(lambda n=long_turns: sum(one >= ALARM_SECONDS for one in late) >= n)  # type: ignore[misc]
    finally:
        watch.stop()
    assert len(said.lines) < sum(one >= ALARM_SECONDS for one in late)
    assert said.lines[0]["untold"] == 0
    assert said.lines[-1]["untold"] >= 2


async def test_beats_are_counted_and_end_with_the_watch() -> None:
    late: list[float] = []
    watch = LoopWatch(late.append, Said())
    watch.start()
    await until(lambda: len(late) >= 3)
    watch.stop()
    count = len(late)
    assert min(late) >= 0
    await asyncio.sleep(0.06)
    assert len(late) == count


def test_a_broker_shows_how_late_its_event_loop_was(broker: BrokerProcess) -> None:
    text = broker.get("/metrics")
    assert "tidelog_event_loop_late_seconds_count" in text
    assert "tidelog_event_loop_late_max_seconds" in text
