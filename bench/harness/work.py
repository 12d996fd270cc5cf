"""How much work a measurement is, the same for all contenders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.harness.model import Sample

PRODUCED_BYTES_MAX = 1_000_000_000
"""Values written in one measurement at most: it ends early rather than wait for a full disk queue."""

CONSUMED_BYTES = 300_000_000
"""Values in a stream that is read."""

SPARK_ROWS = 5_000_000
"""Records in a stream that Spark reads."""

SPARK_PARTITIONS = 2

WARM_CPU_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done where time is not the measure."""

    kills: int = 30
    """Failovers of ours in each case of `failover`."""
    peer_kills: int = 5
    """Failovers of each peer: some take ten seconds and more."""
    streams_percent: float = 100.0
    """Of the streams that a case of `streams` names: less, to try it out."""

    def streams(self, named: int) -> int:
        return max(1, round(named * self.streams_percent / 100))


def within_disk(size: int) -> int:
    """Records of one measurement at most."""
    return PRODUCED_BYTES_MAX // size


def sample_of(result: Mapping[str, object]) -> Sample:
    """What a client printed: its value, and the rest as facts."""
    value = result["value"]
    assert isinstance(value, int | float)
    return Sample(float(value), {name: fact for name, fact in result.items() if name != "value"})
