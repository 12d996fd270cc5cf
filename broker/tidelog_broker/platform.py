"""What a broker gets from the world around it, as one value: files, time, chance, identifiers and threads.

`this_machine` is the operating system's. The simulator has its own and runs the same broker on it, so
no other part of the broker asks the operating system for any of this. The event loop is the other half:
timers and connections come from `asyncio.get_running_loop()`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple
from uuid import uuid4

from tidelog_broker.clock import Clock, elapsed_clock, system_clock
from tidelog_broker.hosting.threads import MakeThreads
from tidelog_broker.storage.directory.data_directory import Unlock, kernel_boot_id, lock_file
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.volume_flush import Judgement, Wish, judge_here


class Platform(NamedTuple):
    """What a broker gets from outside."""

    files: Files
    clock: Clock
    """Wall-clock time, for what is written down."""
    elapsed: Clock
    """Time that passed since some moment, also while the machine slept; µs (R18)."""
    rng: random.Random
    """For pauses and elections; nothing that must be secret."""
    new_id: Callable[[], bytes]
    """A random UUID's 16 bytes."""
    threads: MakeThreads
    boot_id: Callable[[], str]
    """Of the running kernel (2b); empty where there is none to be had."""
    lock: Callable[[str], Unlock]
    """Keeps a second broker out of a data directory."""
    judge_volume: Callable[[Wish, str], Judgement]
    """Whether one flush of the whole file system is safe for a folder (DESIGN 4.3)."""


def _thread_pool(threads: int, name: str) -> Executor:
    return ThreadPoolExecutor(threads, name)


def this_machine(files: Files | None = None, clock: Clock = system_clock) -> Platform:
    """The operating system's, except for what a test gives."""
    return Platform(
        files=files or OsFiles(),
        clock=clock,
        elapsed=elapsed_clock,
        rng=random.Random(),
        new_id=lambda: uuid4().bytes,
        threads=_thread_pool,
        boot_id=kernel_boot_id,
        lock=lock_file,
        judge_volume=judge_here,
    )
