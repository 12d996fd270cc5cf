"""Folders of Parquet files: the lake, and the dead letters beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.errors import InvalidRequest
from tidelog_spark.lake import compaction
from tidelog_spark.lake.folders import Partitioning, Time, folder_of, longest_part
from tidelog_spark.lake.journal import HIDDEN, STAGED_SUFFIX, Decision, Journal, LakeConflict, Moves
from tidelog_spark.lake.stores import Folder, LocalFolder
from tidelog_spark.lake.upkeep import Step
from tidelog_spark.lake.writing import Shape, Written

SPARK_LOG = "_spark_metadata"
"""The log of Spark's own file sink."""


class ParquetLake:
    """The visible files of one query in a folder that belongs to it. The plan of `journal` decides."""

    def __init__(self, folder: Folder, by: Partitioning, query: str, *, compact: bool = False) -> None:
        """`compact`: merge small files; only for a `LocalFolder` with a partitioning."""
        self.folder = folder
        self._by = by
        self._query = query
        self._journal = Journal(folder, query)
        self._touched: set[str] = set()
        """The folders of the last batch."""
        self._compacted = folder.root if compact and isinstance(folder, LocalFolder) else None

    def __repr__(self) -> str:
        return f"<ParquetLake {self.folder.url}>"

    def open(self, schema: pa.Schema) -> Shape:
        """How rows of this schema become files here. Raises `InvalidRequest` and `LakeConflict`."""
        self._by.check(schema)
        self._by.check_folders(schema)
        self._check_partitioning()
        others = self._journal.others()
        if others:
            raise LakeConflict(
                f"{self.folder.url} has the files of another checkpoint (query {others[0]}), and this job "
                f"would write its records again; use that checkpoint, or give the job a folder of its own"
            )
        if self.folder.names(SPARK_LOG):
            raise LakeConflict(
                f"{self.folder.url} was written by Spark's file sink, whose log ({SPARK_LOG}) hides all "
                f"other files from Spark; give the job a folder of its own"
            )
        if self._compacted is not None:
            compaction.check(self._compacted)
        kept = pa.schema([column for column in schema if column.name not in self._by.columns])
        self._remember(kept)
        self._remember_partitioning()
        return Shape(kept, self._by, STAGED_SUFFIX)

    def staging(self, batch: int, attempt: str) -> str:
        return self._journal.staging(batch, attempt)

    def decided(self, batch: int) -> Decision | None:
        """The attempt at the batch whose files count, if that is decided; raises `LakeConflict`."""
        plan = self._journal.decided(batch)
        return plan[0] if plan else None

    def decide(self, batch: int, decision: Decision, files: Sequence[Written]) -> Decision:
        """Writes the plan. Raises `InvalidRequest`, and decides nothing, if no file can have its name."""
        moves = _moves(self._journal, batch, files, self._by)
        # After the plan each run would fail at the same file.
        for file, (_, visible) in zip(files, moves, strict=True):
            reason = self.folder.too_long(visible)
            if reason is not None:
                raise InvalidRequest(
                    f"the folder of {longest_part(file.key, self._by)} in {self.folder.url} would give a "
                    f"file {reason}. Partition by columns with short values; if the lake has files already, "
                    f"write to a new folder with a new checkpoint"
                )
        return self._journal.decide(batch, decision, moves)

    def complete(self, batch: int) -> None:
        """Makes the files of the batch visible."""
        moves = self._journal.complete(batch)
        self._touched = {visible.rpartition("/")[0] for _, visible in moves}

    def upkeep(self) -> Iterator[Step]:
        """Merges the small files of each folder to which the last batch wrote."""
        if self._compacted is None:
            return
        for folder in sorted(self._touched):
            merge = partial(compaction.compact, self._compacted, [folder])
            yield Step(f"The merge of small files in {folder} of {self.folder.url}", merge)

    @property
    def _partitioning(self) -> str:
        return f"{HIDDEN}/{self._query}/partitioning"

    def _check_partitioning(self) -> None:
        """Raises `InvalidRequest` if the folder has files under other partition folders than the job's.

        An earlier version kept no note, and let the partitioning change. So a lake without a note goes on
        with the partitioning of its next run.
        """
        known = self.folder.read(self._partitioning)
        if known is None or not self._journal.has_batches():
            return
        note = json.loads(known)
        before = Partitioning(Time(note["time"]), tuple(note["columns"]))
        if (before.time, before.columns) != (self._by.time, self._by.columns):
            raise InvalidRequest(
                f"the files in {self.folder.url} are partitioned by {before}, and partitionBy of the job "
                f"says {self._by}; readers cannot join the two. Keep the partitioning, or write to a new "
                f"folder with a new checkpoint"
            )

    def _remember_partitioning(self) -> None:
        note = json.dumps({"time": self._by.time.value, "columns": self._by.columns}).encode()
        if self.folder.read(self._partitioning) != note:
            # `create` is one step, so the note is never half there. Without a note the next run writes it.
            self.folder.remove(self._partitioning)
            self.folder.create(self._partitioning, note)

    def _remember(self, schema: pa.Schema) -> None:
        """Keeps the types of all columns so far; raises `InvalidRequest` if a column changes its type."""
        name = f"{HIDDEN}/{self._query}/schema"
        known = self.folder.read(name)
        before = pa.schema([]) if known is None else pq.read_schema(pa.BufferReader(known))
        for column in schema:
            if column.name in before.names and before.field(column.name).type != column.type:
                raise InvalidRequest(
                    f"the files in {self.folder.url} have the column {column.name} as "
                    f"{before.field(column.name).type}, and the job would write {column.type}; keep the "
                    f"type, give the column another name, or write to a new folder with a new checkpoint"
                )
        together = pa.unify_schemas([before, schema.remove_metadata()])
        if together != before:
            sink = pa.BufferOutputStream()
            pq.write_metadata(together, sink)
            # A file that is half written would be in the way of each later run.
            with self.folder.write(f"{name}.draft") as file:
                file.write(sink.getvalue())
            self.folder.move(f"{name}.draft", name)


class DeadLetters:
    """The records that cannot be decoded, beside a target that decides.

    An attempt writes its plan before the target decides, and the files become visible only afterwards: a
    batch that the target does not have is not here, either. Several jobs may share the folder.
    """

    def __init__(self, folder: Folder, by: Partitioning, query: str) -> None:
        self.folder = folder
        self._by = by
        self._journal = Journal(folder, query)

    def __repr__(self) -> str:
        return f"<DeadLetters {self.folder.url}>"

    def open(self, schema: pa.Schema) -> Shape:
        self._by.check(schema)
        return Shape(schema, self._by, STAGED_SUFFIX)

    def staging(self, batch: int, attempt: str) -> str:
        return self._journal.staging(batch, attempt)

    def prepare(self, batch: int, decision: Decision, files: Sequence[Written]) -> None:
        self._journal.prepare(batch, decision, _moves(self._journal, batch, files, self._by))

    def complete(self, batch: int, attempt: str) -> None:
        self._journal.complete_prepared(batch, attempt)


def _moves(journal: Journal, batch: int, files: Sequence[Written], by: Partitioning) -> Moves:
    """Where the files of a batch become visible."""
    folders = [folder_of(file.key, by) for file in files]
    return [
        (file.path, journal.visible(batch, number, folder))
        for number, (file, folder) in enumerate(zip(files, folders, strict=True))
    ]
