"""The figures in README.md are those of docs/benchmarks.md, rounded."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from docs.documents import text_of

TOLERANCE = 0.02
"""Rounding to two or three digits changes a figure by less."""


class Row(NamedTuple):
    """A row of README.md and the case of docs/benchmarks.md that it is about."""

    begins: str
    case: str
    peers: tuple[str, ...]
    """The beginnings of the peers' names in docs/benchmarks.md, in the order of the columns."""


KAFKA, JETSTREAM, SYNCED = "kafka-4.3.1", "jetstream-2.15.1", "jetstream-2.15.1 (Go, sync always)"
RATIOS = [
    Row("write batches of 100-byte records", "produce.rf3.fsync.100B.batch", (KAFKA, SYNCED)),
    Row("read them from the start", "consume.rf3.100B", (KAFKA, JETSTREAM)),
    Row("gap in acknowledged writes", "failover.kill", (KAFKA, JETSTREAM)),
]
VALUES = [
    Row("one record in flight", "serial.rf3.fsync.grpc", (SYNCED, KAFKA)),
    Row("end to end at 1,000 records a second", "e2e.rf3.1000rps", (JETSTREAM, KAFKA)),
    Row("gap when a leader is killed", "failover.kill", (JETSTREAM, KAFKA)),
    Row("memory of an idle server", "memory.rf1.idle", (JETSTREAM, KAFKA)),
]


def cells(document: str, begins: str) -> list[str]:
    """The cells of the only row of a table that begins so, without the first cell."""
    (line,) = [line for line in text_of(document).splitlines() if line.startswith(f"| {begins}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def measured(case: str, peer: str) -> tuple[float, float, float]:
    """Ours, theirs and the ratio, of the first row for this case and peer."""
    for line in text_of("docs/benchmarks.md").splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if len(row) == 5 and row[0] == f"`{case}`" and row[2].startswith(peer):
            return number(row[1]), number(row[3]), number(row[4])
    raise AssertionError(f"docs/benchmarks.md has no row for {case} and {peer}")


def number(text: str) -> float:
    """The first number in a cell; `k`, `M` and `million` multiply it."""
    found = re.match(r"([\d.,]+)\s*(k|M|million)?\b", text)
    assert found, text
    return float(found[1].replace(",", "")) * {"k": 1e3, "M": 1e6, "million": 1e6}.get(found[2] or "", 1.0)


@pytest.mark.parametrize("row", RATIOS, ids=lambda row: row.case)
def test_the_three_figures_and_their_ratios_are_measured(row: Row) -> None:
    ours, *ratios = [number(cell) for cell in cells("README.md", row.begins)]

    for ratio, peer in zip(ratios, row.peers, strict=True):
        figures = measured(row.case, peer)
        assert ours == pytest.approx(figures[0], rel=TOLERANCE)
        assert ratio == pytest.approx(figures[2], rel=TOLERANCE)


@pytest.mark.parametrize("row", VALUES, ids=lambda row: row.case)
def test_the_figures_of_the_comparison_are_measured(row: Row) -> None:
    ours, *theirs = [number(cell) for cell in cells("README.md", row.begins)[:3]]

    for figure, peer in zip(theirs, row.peers, strict=True):
        figures = measured(row.case, peer)
        assert ours == pytest.approx(figures[0], rel=TOLERANCE)
        assert figure == pytest.approx(figures[1], rel=TOLERANCE)
