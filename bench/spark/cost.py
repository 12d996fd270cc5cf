"""The processor time of the parts of a measurement: the JVM, Spark's Python processes and the brokers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

from bench.measuring.machine import process_seconds, tree_seconds

PR_SET_CHILD_SUBREAPER = 36
"""Of prctl(2)."""


def adopt_orphans() -> None:
    """Makes this process the parent of processes below it whose parents have ended.

    When Spark ends an idle Python daemon, the workers of the daemon lose their parent; their time counts on.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of each part; two of them give what was spent in between."""

    jvm: float
    python: float
    """Of all processes that the JVM starts, ended ones included: Spark's Python processes, and Hadoop's
    `chmod` for each file of a checkpoint, which every contender has. The driver's Python only asks."""
    broker: float

    @classmethod
    def now(cls, jvm: int, brokers: Sequence[int]) -> Cost:
        """The processor time until now; `jvm`, a child of this process, and `brokers` are process ids.

        It needs `adopt_orphans`.
        """
        alone, own = process_seconds(jvm), os.getpid()
        below = tree_seconds(own) - process_seconds(own) - alone
        return cls(alone, below, sum(process_seconds(pid) for pid in brokers))

    def since(self, before: Cost) -> Cost:
        return Cost(self.jvm - before.jvm, self.python - before.python, self.broker - before.broker)

    def per_million_rows(self, rows: int) -> dict[str, float]:
        """The facts of a measurement, in CPU seconds per million rows."""
        return {
            f"{part}_cpu_s_per_million_rows": seconds / rows * 1e6
            for part, seconds in (("jvm", self.jvm), ("python", self.python), ("broker", self.broker))
        }

    def per_batch(self, batches: int) -> dict[str, float]:
        """The facts of a measurement, in CPU milliseconds per micro-batch, pauses between them included."""
        return {
            f"{part}_cpu_ms_per_batch": seconds / batches * 1e3
            for part, seconds in (("jvm", self.jvm), ("python", self.python), ("broker", self.broker))
        }
