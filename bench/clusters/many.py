"""What thousands of streams cost three servers: the time to make them, memory, and CPU without requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from bench.harness.model import Contender, Sample
from bench.harness.stage import Stage
from bench.measuring.machine import ForeignLoad, memory_mb, process_seconds

SETTLE_SECONDS = 15.0
"""From the last stream until the CPU is measured: flushes and elections end meanwhile."""

IDLE_SECONDS = 20.0

ASPECTS = {"create": "s", "memory": "MB", "idle_cpu": "% of a core"}
"""The figures of a `streams` case, with their units."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The figures of a cluster with many streams; memory and CPU with one number per server."""

    create_s: float
    memory_mb: tuple[float, ...]
    idle_percent: tuple[float, ...]
    foreign_cpus: float = 0.0
    """Foreign load while the idle CPU was measured; all cases share that measurement."""

    def of(self, aspect: str) -> Sample:
        """The value of the server that needs most."""
        if aspect == "create":
            return Sample(self.create_s)
        each = self.memory_mb if aspect == "memory" else self.idle_percent
        return Sample(
            max(each), {"servers": [round(one, 2) for one in each], "foreign_cpus": self.foreign_cpus}
        )


def footprint(pids: Sequence[int], create_s: float) -> Footprint:
    """Measures servers that have just made their streams."""
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
    """The contender for one aspect; one measurement of the cluster serves all aspects."""
    count = stage.effort.streams(streams)
    return Contender(
        name,
        lambda _seconds: stage.once(f"{name} {count} streams", lambda: measure(count)).of(aspect),
        {**settings, "streams": count, "copies": 3},
    )
