"""The scrubber reads everything, and no faster than it may."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage.batches import STREAM_ID, T0, item, records
from support.waiting import until
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.upkeep import scrubber
from tidelog_broker.upkeep.scrubber import Scrubber


def filled(folder: Path) -> PartitionLog:
    store = LogStore(OsFiles(), str(folder))
    log = store.opener.create(Wanted("orders", STREAM_ID, 0, LogConfig(segment_bytes=40_000)))
    for _ in range(10):
        log.writer.append([item(records(10, 1000))], leader_epoch=1, now_us=T0)
    log.flusher.sync()
    return log


@pytest.mark.parametrize("least", [0, 10_000, 1_000_000])
async def test_a_scrub_pass_takes_as_long_as_its_bytes_are_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    log, sleep = filled(tmp_path), asyncio.sleep
    slept: list[float] = []
    read: list[int] = []

    async def sleeping(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0 if seconds < 3600 else 3600)

    monkeypatch.setattr(scrubber, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(scrubber, "SEGMENT_BYTES_MIN", least)
    monkeypatch.setattr(asyncio, "sleep", sleeping)
    partition: Any = SimpleNamespace(log=log, removed=False)
    with ThreadPoolExecutor(1) as thread:
        one = Scrubber(
            {(STREAM_ID, 0): partition}, thread, bytes_per_second=50_000, interval=3600.0, read=read.append
        )
        running = asyncio.create_task(one.run())
        while 3600.0 not in slept:
            await sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert len(log.segments) >= 3
    assert sum(read) == log.bytes
    # The first pass begins soon after the start, the next one an interval after its end.
    first, *pauses, last = slept
    assert (first, last, one.passes) == (60.0, 3600.0, 1)
    worth = sum(max(least, segment.size) for segment in log.segments)
    assert sum(pauses) == pytest.approx(worth / 50_000, abs=scrubber.PAUSE_SECONDS_MIN)


async def test_a_log_that_cannot_be_read_does_not_keep_the_others_from_their_turn(tmp_path: Path) -> None:
    gone, whole = filled(tmp_path / "1"), filled(tmp_path / "2")
    first = gone.segments[0]
    first.forget_files()
    Path(first.path).unlink()
    partitions: Any = {
        (STREAM_ID, number): SimpleNamespace(log=log, removed=False)
        for number, log in enumerate((gone, whole))
    }
    read: list[int] = []
    with ThreadPoolExecutor(1) as thread:
        one = Scrubber(partitions, thread, bytes_per_second=1 << 30, interval=0.01, read=read.append)
        running = asyncio.create_task(one.run())
        await until(lambda: one.passes, "a pass")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert sum(read) >= whole.bytes + gone.bytes - first.size
