"""The last step of the demo: shows the Parquet files that Spark wrote, as a table and a chart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from rich.table import Table

from tidelog.cli.demo.chart import columns
from tidelog.cli.output import table

ROWS_PER_KIND_MAX = 5
CHART_COLUMNS_MAX = 40


@dataclass(frozen=True, slots=True)
class Results:
    """The two tables that the Spark job wrote."""

    summary: list[dict[str, Any]]
    """A row for each item that was measured, ordered by kind, the highest average first."""
    per_second: list[dict[str, Any]]
    files: list[Path]
    bytes: int

    @classmethod
    def read(cls, folder: Path) -> Results:
        files = sorted(folder.rglob("*.parquet"))
        summary = _rows(folder / "summary")
        summary.sort(key=lambda row: (row["kind"], -(row["average"] or 0.0), row["item"]))
        return cls(summary, _rows(folder / "per_second"), files, sum(file.stat().st_size for file in files))


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    )
    return rows


def result_table(results: Results) -> Table:
    """A table of the highest averages of each kind."""
    shown: dict[str, int] = {}
    rows = []
    for row in results.summary:
        shown[row["kind"]] = shown.get(row["kind"], 0) + 1
        if shown[row["kind"]] > ROWS_PER_KIND_MAX:
            continue
        rows.append(
            (
                f"   {row['kind']}", row["item"], row["metric"], row["samples"],
                f"{row['average']:.2f}", f"{row['maximum']:.2f}", row["unit"],
            )
        )  # fmt: skip
    names = ("   kind", "what", "metric", "samples", "average", "highest", "unit")
    return table(names, rows, right=("samples", "average", "highest"))


def chart_lines(results: Results) -> list[str]:
    """A chart of the average use of all cores, one column a second, the newest at the right."""
    by_second: dict[Any, list[float]] = {}
    for row in results.per_second:
        if row["kind"] == "cpu":
            by_second.setdefault(row["second"], []).append(row["average"])
    values = [sum(found) / len(found) for _, found in sorted(by_second.items())][-CHART_COLUMNS_MAX:]
    return columns(values, top=100.0, width=2, unit="%")


def results_json(results: Results) -> list[dict[str, Any]]:
    return results.summary
