"""What thousands of streams cost three servers: making them, memory, CPU while nobody asks for anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from bench.harness.model import Contender, Sample
from bench.harness.stage import Stage
from bench.measuring.machine import ForeignLoad, memory_mb, process_seconds

SETTLE_SECONDS = 15.0
"""Between the last stream and the look at the CPU: flushes and elections end."""

IDLE_SECONDS = 20.0

ASPECTS = {"create": "s", "memory": "MB", "idle_cpu": "% of a core"}
"""What is told of the streams, with its unit."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of a cluster with many streams; one number per server."""

    create_s: float
    memory_mb: tuple[float, ...]
    idle_percent: tuple[float, ...]
    foreign_cpus: float = 0.0
    """While the idle CPU was taken: the cases share that moment."""

    def of(self, aspect: str) -> Sample:
        """The dearest server counts."""
        if aspect == "create":
            return Sample(self.create_s)
        each = self.memory_mb if aspect == "memory" else self.idle_percent
        return Sample(
            max(each), {"servers": [round(one, 2) for one in each], "foreign_cpus": self.foreign_cpus}
        )


def footprint(pids: Sequence[int], create_s: float) -> Footprint:
    """Of servers that have just made their streams."""
    sleep(SETTLE_SECONDS)
    foreign = ForeignLoad()
    before, began = [process_seconds(pid) for pid in pids], monotonic()
    sleep(IDLE_SECONDS)
    passed = monotonic() - began
    idle = [100 * (process_seconds(pid) - was) / passed for pid, was in zip(pids, before, strict=True)]
    memory = tuple(memory_mb(pid)[0] for pid in pids)
    return Footprint(create_s, memory, tuple(idle), round(foreign.end(), 3))


def contender(
    stage: Stage,
    name: str,
    measure: Callable[[int], Footprint],
    *,
    streams: int,
    aspect: str,
    settings: Mapping[str, object],
) -> Contender:
    """One aspect; the cluster is measured once for all of them."""
    count = stage.effort.streams(streams)
    return Contender(
        name,
        lambda _seconds: stage.once(f"{name} {count} streams", lambda: measure(count)).of(aspect),
        {**settings, "streams": count, "copies": 3},
    )
