"""Finds a running process by its kind, and kills it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Final

import psutil

from chaos.spark.jobs import Driver
from chaos.spark.machines import BROKERS, Machines
from tidelog import blocking
from tidelog.errors import TidelogError

EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Victim(StrEnum):
    """What a kill hits."""

    DRIVER = "driver"
    EXECUTOR = "executor"
    """The Java process of an executor; its Python processes end with it."""
    PYTHON = "python-worker"
    """A process of an executor that runs a task."""
    LEADER = "leader"
    """The broker that leads a partition."""
    BROKERS = "brokers"
    """All brokers at once."""


def order_of(kills: int, chance: random.Random) -> list[Victim]:
    """The victims of a run: each kind once in each round, in an order by chance."""
    found: list[Victim] = []
    while len(found) < kills:
        found += chance.sample(list(Victim), len(Victim))
    return found[:kills]


class Killer:
    """Kills the processes of one run."""

    def __init__(
        self, machines: Machines, driver: Driver, log: blocking.Client, stream: str, chance: random.Random
    ) -> None:
        """`stream`: the one whose leaders are killed."""
        self._machines, self._driver, self._log, self._stream = machines, driver, log, stream
        self._chance = chance

    def kill(self, victim: Victim) -> bool:
        """False: no such process runs now, so nothing was killed."""
        match victim:
            case Victim.DRIVER:
                return self._driver.kill()
            case Victim.EXECUTOR:
                return self._kill_one(self._executors())
            case Victim.PYTHON:
                return self._kill_one(self._python_workers())
            case Victim.LEADER:
                return self._kill_leader()
            case Victim.BROKERS:
                return self._kill_brokers(range(BROKERS))

    @contextmanager
    def one_task_stalled(self) -> Iterator[None]:
        """A process of a task does not run for the length of the block, so that Spark begins another
        attempt."""
        workers = self._python_workers()
        stalled = self._chance.choice(workers) if workers else None
        if stalled is not None:
            with suppress(psutil.NoSuchProcess):
                stalled.suspend()
        try:
            yield
        finally:
            if stalled is not None:
                with suppress(psutil.NoSuchProcess):
                    stalled.resume()

    def _executors(self) -> list[psutil.Process]:
        return [one for worker in self._machines.workers for one in _children(worker.process.pid, EXECUTOR)]

    def _python_workers(self) -> list[psutil.Process]:
        found = []
        for executor in self._executors():
            for daemon in _children(executor.pid, "pyspark.daemon"):
                with suppress(psutil.NoSuchProcess):
                    found += daemon.children()
        return sorted(found, key=lambda one: one.pid)

    def _kill_one(self, processes: list[psutil.Process]) -> bool:
        if not processes:
            return False
        try:
            os.kill(self._chance.choice(processes).pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _kill_leader(self) -> bool:
        with suppress(TidelogError):
            leaders = [one.leader for one in self._log.describe_stream(self._stream).partitions]
            leader = self._chance.choice(leaders)
            return leader is not None and self._kill_brokers([leader])
        return False

    def _kill_brokers(self, numbers: range | list[int]) -> bool:
        """Kills them, and starts them again."""
        brokers = self._machines.brokers
        if not all(brokers.brokers[number].running for number in numbers):
            return False
        for number in numbers:
            brokers.brokers[number].kill()
        for number in numbers:
            brokers.launch(number)
        for number in numbers:
            brokers.wait_ready(number)
        return True


def _children(pid: int, words: str) -> list[psutil.Process]:
    """The children of a process whose command line contains `words`."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):
                if words in " ".join(child.cmdline()):
                    found.append(child)
    return found
