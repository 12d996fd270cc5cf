"""One run: a job on a target, kills by a seeded schedule while records flow, the end, and the verdict."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.spark import evidence
from chaos.spark.checking import Findings, compare
from chaos.spark.flow import PARTITIONS, SOURCE, Flow
from chaos.spark.jobs import TARGET, Driver, Target, records_of
from chaos.spark.machines import BROKERS, Machines
from chaos.spark.victims import Killer, Victim, order_of
from tidelog import blocking
from tidelog.cli.local.local_cluster import folder_name
from tidelog.cli.local.processes import Signals
from tidelog.model.configuration import StreamSettings

KILL_SECONDS_MAX: Final = 240.0
"""Within this time a micro-batch must be done after a kill, and the next kill must find its victim."""

END_SECONDS_MAX: Final = 600.0
BATCH_SECONDS_FIRST: Final = 1.0
"""What a micro-batch is expected to take before any is measured."""

BATCH_SECONDS_MAX: Final = 4.0
"""The longest time after the begin of a micro-batch at which a kill happens."""

LOOK_SECONDS: Final = 0.01
BATCHES_OF_A_TASK_MIN: Final = 101
TARGET_PARTITIONS: Final = 3
TARGET_BATCH_BYTES_MAX: Final = 4_096
"""So small that a task of the sink writes more than a hundred record batches."""


@dataclass
class Report:
    """What a run did and found."""

    target: Target
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    records: int = 0
    work: evidence.Work | None = None
    batches_of_tasks: list[int] = field(default_factory=list)
    """Record batches of each task: written by it, or for a lake read by it."""
    findings: Findings = field(default_factory=Findings)
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """What the run could not do or prove."""

    @property
    def clean(self) -> bool:
        return self.findings.clean and not self.failures

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target, "seed": self.seed, "kills": dict(sorted(self.kills.items())),
            "starts": self.starts, "records": self.records, "work": vars(self.work) if self.work else None,
            "tasks": len(self.batches_of_tasks),
            "tasks_with_more_than_100_batches": sum(
                count >= BATCHES_OF_A_TASK_MIN for count in self.batches_of_tasks
            ),
            "batches_of_a_task_max": max(self.batches_of_tasks, default=0),
            "anomalies": self.findings.as_json(), "seconds": round(self.seconds, 1),
            "failures": [*self.failures, *self.findings.sentences()], "clean": self.clean,
        }  # fmt: skip


class Run:
    """A job, its target, and the kills."""

    def __init__(
        self,
        folder: Path,
        target: Target,
        kills: int,
        seed: int,
        signals: Signals,
        say: Callable[[str], None],
    ) -> None:
        self._target, self._kills, self._say = target, kills, say
        self._chance = random.Random(f"{seed} {target}")
        self._machines = Machines(folder, signals)
        self._driver = Driver(self._machines, target, kills)
        self.report = Report(target, seed)
        self._batch_seconds: list[float] = []

    def play(self) -> Report:
        """Raises nothing that the run is about: all faults are in the report."""
        began = time.monotonic()
        try:
            self._machines.start()
            with blocking.connect(self._machines.servers) as log:
                self._play(log)
            self._prove()
        finally:
            self._driver.kill()
            self._machines.stop()
            self.report.seconds = time.monotonic() - began
        return self.report

    def _play(self, log: blocking.Client) -> None:
        log.create_stream(SOURCE, partitions=PARTITIONS, replication_factor=3, durability="page-cache")
        if self._target is Target.SINK:
            log.create_stream(
                TARGET, partitions=TARGET_PARTITIONS, replication_factor=3, durability="page-cache",
                settings=StreamSettings(batch_bytes_max=TARGET_BATCH_BYTES_MAX),
            )  # fmt: skip
        stream = TARGET if self._target is Target.SINK else SOURCE
        killer = Killer(self._machines, self._driver, log, stream, self._chance)
        flow = Flow(self._machines.servers, self._planned)
        flow.start()
        for number, victim in enumerate(order_of(self._kills, self._chance), start=1):
            self._kill(killer, victim, flow)
            self.report.kills[victim] += 1
            done = evidence.committed(self._driver.checkpoint)
            self._say(f"{self._target}: kill {number} of {self._kills}, {victim}; {done} batches done")
        flow.stop(END_SECONDS_MAX)
        self._driver.finish(END_SECONDS_MAX)
        self.report.starts = self._driver.starts
        source = records_of(log, SOURCE)
        self.report.records = len(source)
        if len(source) != flow.sent:
            self.report.failures.append(f"{flow.sent} records were sent, and the source has {len(source)}")
        self.report.findings = compare(source, self._driver.rows(log))

    def _planned(self) -> int:
        known = evidence.planned(self._driver.checkpoint, SOURCE)
        return sum(known[-1][1].values()) if known else 0

    def _kill(self, killer: Killer, victim: Victim, flow: Flow) -> None:
        """One kill: a micro-batch is done after the kill before it, and the next one has begun."""
        deadline = time.monotonic() + KILL_SECONDS_MAX
        done = evidence.committed(self._driver.checkpoint)
        self._wait(lambda: evidence.committed(self._driver.checkpoint) > done, deadline, flow)
        self._wait(self._batch_runs, deadline, flow)
        expected = statistics.median(self._batch_seconds or [BATCH_SECONDS_FIRST])
        moment = time.monotonic() + self._chance.random() * min(expected, BATCH_SECONDS_MAX)
        with killer.one_task_stalled():
            self._wait(lambda: time.monotonic() >= moment, deadline, flow)
            self._wait(lambda: killer.kill(victim), deadline, flow)

    def _batch_runs(self) -> bool:
        known = evidence.planned(self._driver.checkpoint, SOURCE)
        return len(known) > evidence.committed(self._driver.checkpoint)

    def _wait(self, condition: Callable[[], bool], deadline: float, flow: Flow) -> None:
        """Keeps the driver running until the condition holds."""
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no progress within {KILL_SECONDS_MAX:g} s after a kill")
            if flow.failure is not None:
                raise flow.failure
            self._driver.keep_running()
            self._measure()
            time.sleep(LOOK_SECONDS)

    def _measure(self) -> None:
        """Notes how long the newest micro-batch took, from its place in the checkpoint."""
        number = evidence.committed(self._driver.checkpoint) - 1
        if number < len(self._batch_seconds) or number < 0:
            return
        with suppress(OSError):
            begin = (self._driver.checkpoint / "offsets" / str(number)).stat().st_mtime
            end = (self._driver.checkpoint / "commits" / str(number)).stat().st_mtime
            self._batch_seconds.append(end - begin)

    def _prove(self) -> None:
        """Checks that the run did what it is for: speculative attempts, and more than 100 batches a task."""
        for broker in self._machines.brokers.stop():
            self.report.failures.append(f"{broker} did not stop")
        data = [self._machines.folder / folder_name(number) for number in range(BROKERS)]
        stream = TARGET if self._target is Target.SINK else SOURCE
        logs = [evidence.headers(one, stream) for one in data]
        longest = max(logs, key=lambda log: sum(len(some) for some in log.values()))
        if self._target is Target.SINK:
            counts = evidence.batches_written_by_tasks(longest)
        else:
            counts = evidence.batches_read_by_tasks(longest, self._driver.checkpoint, SOURCE)
        self.report.batches_of_tasks = counts
        self.report.work = evidence.work(self._driver.events)
        if max(counts, default=0) < BATCHES_OF_A_TASK_MIN:
            self.report.failures.append("no task had more than 100 record batches")
        if not self.report.work.speculative:
            self.report.failures.append("Spark began no speculative attempt")
