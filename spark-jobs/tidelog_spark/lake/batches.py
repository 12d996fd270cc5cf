"""One micro-batch from rows to a target: staged by tasks, decided once, completed; then the target's upkeep.

`stage` runs in the tasks, `Batches` in the driver; the driver gives each task an `Order`. Between the two
are only small rows that describe the files, as Arrow batches of `REPORT`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelog_spark.lake.columns import dead_letter_schema, dead_letters, table_rows, table_schema
from tidelog_spark.lake.journal import Decision
from tidelog_spark.lake.parquet import DeadLetters
from tidelog_spark.lake.stores import Folder
from tidelog_spark.lake.upkeep import Step, keep_up
from tidelog_spark.lake.writing import RowWriter, Shape, Written
from tidelog_spark.payload import BAD_RECORD

REPORT: Final = pa.schema(
    {
        "dead": pa.bool_(),
        "path": pa.string(),
        "key": pa.string(),
        "rows": pa.int64(),
        "bytes": pa.int64(),
        "footer": pa.binary(),
    }
)
"""One row for each file that a task has written. A row without a path counts bad records without a file."""

REPORT_DDL: Final = "dead boolean, path string, key string, rows bigint, bytes bigint, footer binary"
"""The same for Spark."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task puts rows, and how."""

    folder: Folder
    path: str
    shape: Shape

    def writer(self) -> RowWriter:
        return RowWriter(self.folder, self.path, self.shape)


@dataclass(frozen=True, slots=True)
class Order:
    """What a task does with the rows of a batch. Picklable."""

    rows: Place
    dead: Place | None
    without_bad: bool
    """Bad records, which the column `BAD_RECORD` tells apart, are not among the rows of the target."""


Run = Callable[[Order], Iterable[Mapping[str, Any]]]
"""Executes `stage` with the order in the tasks, and answers the rows of `REPORT`."""


def stage(batches: Iterable[pa.RecordBatch], order: Order) -> Iterator[pa.RecordBatch]:
    """Writes the rows of a task to files; yields their description, and the number of bad records without."""
    bad = 0
    with ExitStack() as stack:
        rows = stack.enter_context(order.rows.writer())
        dead = stack.enter_context(order.dead.writer()) if order.dead else None
        for batch in batches:
            good = batch
            if order.without_bad:
                failed = pc.is_valid(batch.column(BAD_RECORD))
                good = batch.filter(pc.invert(failed))
                if dead is not None:
                    yield from _described(dead.add(dead_letters(batch.filter(failed))), dead=True)
                else:
                    bad += batch.num_rows - good.num_rows
            yield from _described(rows.add(table_rows(good)), dead=False)
        yield from _described(rows.finish(), dead=False)
        if dead is not None:
            yield from _described(dead.finish(), dead=True)
    if bad:
        yield pa.RecordBatch.from_pylist([{"dead": True, "rows": bad}], schema=REPORT)


def _described(files: Iterable[Written], *, dead: bool) -> Iterator[pa.RecordBatch]:
    for file in files:
        row = {
            "dead": dead, "path": file.path, "key": json.dumps(file.key), "rows": file.rows,
            "bytes": file.size, "footer": file.footer,
        }  # fmt: skip
        yield pa.RecordBatch.from_pylist([row], schema=REPORT)


class Target(Protocol):
    """What decides a batch: a Parquet lake or an Iceberg table. An attempt at a batch is decided once."""

    @property
    def folder(self) -> Folder: ...
    def open(self, schema: pa.Schema) -> Shape: ...
    def staging(self, batch: int, attempt: str) -> str: ...
    def decided(self, batch: int) -> Decision | None: ...
    def decide(self, batch: int, decision: Decision, files: Sequence[Written]) -> Decision: ...
    def complete(self, batch: int) -> None: ...
    def upkeep(self) -> Iterable[Step]: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch."""

    counts: Mapping[str, int]
    """``rows``, ``deadLetters``, ``files`` and ``bytes``."""
    again: bool
    """An earlier run had decided the batch already."""


class Batches:
    """The driver's part: asks the tasks to stage a batch, lets the target decide it, and completes it."""

    def __init__(self, target: Target, dead: DeadLetters | None = None, *, without_bad: bool = False) -> None:
        """`dead` takes the bad records. With `without_bad` the target gets none, also without `dead`."""
        self._target = target
        self._dead = dead
        self._without_bad = without_bad or dead is not None
        self._shapes: tuple[Shape, Shape | None] | None = None

    def open(self, schema: pa.Schema) -> None:
        """Prepares the target for rows of this schema of the source; raises what `Target.open` raises."""
        kept = [column for column in schema if not (self._without_bad and column.name == BAD_RECORD)]
        shape = self._target.open(table_schema(pa.schema(kept)))
        self._shapes = shape, self._dead.open(dead_letter_schema(schema)) if self._dead else None

    def write(self, batch: int, run: Run, send_bad: Callable[[int], None] | None = None) -> Outcome:
        """Writes a batch, once, whatever is left of earlier attempts; then the upkeep, which may fail.

        `send_bad` is called with the number of bad records before the target decides. After a crash it may be
        called again for the same batch, and then must do nothing twice.
        """
        decision = self._target.decided(batch)
        again = decision is not None
        if decision is None:
            decision = self._attempt(batch, uuid.uuid4().hex, run, send_bad)
        self._target.complete(batch)
        if self._dead is not None:
            self._dead.complete(batch, decision.attempt)
        keep_up(self._target.upkeep())
        return Outcome(decision.counts, again)

    def _attempt(
        self, batch: int, attempt: str, run: Run, send_bad: Callable[[int], None] | None
    ) -> Decision:
        assert self._shapes is not None, "open() comes first"
        shape, dead_shape = self._shapes
        dead = None
        if self._dead is not None and dead_shape is not None:
            dead = Place(self._dead.folder, self._dead.staging(batch, attempt), dead_shape)
        order = Order(
            Place(self._target.folder, self._target.staging(batch, attempt), shape), dead, self._without_bad
        )
        described = list(run(order))
        good = [_written(row) for row in described if not row["dead"]]
        bad = [_written(row) for row in described if row["dead"] and row["path"]]
        counts = {
            "rows": sum(file.rows for file in good),
            "deadLetters": sum(row["rows"] for row in described if row["dead"]),
            "files": len(good),
            "bytes": sum(file.size for file in good),
        }
        decision = Decision(attempt, counts)
        if self._dead is not None:
            self._dead.prepare(batch, decision, bad)
        if send_bad is not None:
            send_bad(counts["deadLetters"])
        return self._target.decide(batch, decision, good)


def _written(row: Mapping[str, Any]) -> Written:
    key = tuple(json.loads(row["key"]))
    return Written(row["path"], key, row["rows"], row["bytes"], bytes(row["footer"]))
