"""How much work a measurement is, the same for all contenders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.harness.model import Sample

PRODUCED_BYTES_MAX = 1_000_000_000
"""Bytes of values in one measurement at most: it ends early instead of waiting for a full disk queue."""

CONSUMED_BYTES = 300_000_000
"""Bytes of values in a stream that is read."""

SPARK_ROWS = {100: 10_000_000, 1000: 1_000_000}
"""Rows that Spark reads or writes, by the size of a value: about 1 GB."""

SPARK_PARTITIONS = 2

WARM_CPU_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a case does where its length is not given in seconds."""

    kills: int = 30
    """Failovers of Tidelog in each `failover` case."""
    peer_kills: int = 5
    """Failovers of each peer in each `failover` case: some take ten seconds and more."""
    streams_percent: float = 100.0
    """Share of the streams that a `streams` case names; less than 100 to try a case out."""

    spark_percent: float = 100.0
    """Share of the rows of a `spark` case; less than 100 to try a case out."""

    def streams(self, named: int) -> int:
        return max(1, round(named * self.streams_percent / 100))

    def spark_rows(self, size: int) -> int:
        """Rows with values of `size` bytes that a `spark` case reads or writes."""
        return max(1, round(SPARK_ROWS[size] * self.spark_percent / 100))


def within_disk(size: int) -> int:
    """Records of one measurement at most."""
    return PRODUCED_BYTES_MAX // size


def sample_of(result: Mapping[str, object]) -> Sample:
    """The sample in a client's result: `value`, and all other fields as facts."""
    value = result["value"]
    assert isinstance(value, int | float)
    return Sample(float(value), {name: fact for name, fact in result.items() if name != "value"})
