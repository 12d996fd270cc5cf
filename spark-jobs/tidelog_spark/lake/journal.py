"""What makes a micro-batch count once in a folder: a plan, written before the first file appears.

    <folder>/_tidelog/<query>/staged/<batch>-<attempt>/…   files of a batch, not visible yet
    <folder>/_tidelog/<query>/plan-<batch>.json            which staged file becomes which visible file
    <folder>/_tidelog/<query>/schema, partitioning         notes of `parquet`: columns and folders so far

A batch has three steps: tasks stage its files, the driver writes the plan, the driver moves the files.
The plan decides. Before it is there, a batch that runs again starts from nothing; after it, the batch only
completes the moves, however often it was interrupted. So the rows of a batch are those of one attempt,
even if another attempt would have made other files of them. Staged files of other attempts are removed only
after the decision: before it, a driver that is believed dead might still decide for its own.

The names of the visible files have the query and the batch, and a file leaves the staging folder when it
becomes visible. A reader that lists the folder sees each row at most once at any moment, and exactly once
when the batch is complete. Names that begin with ``_`` are hidden from Spark, Hive, Trino and pyarrow, and
no staged file is called ``.parquet``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.errors import TidelogError
from tidelog_spark.lake.stores import Folder

HIDDEN: Final = "_tidelog"
STAGED_SUFFIX: Final = ".staged"

_PLAN = re.compile(r"plan-(\d+)(?:-\w+)?\.json")


class LakeConflict(TidelogError):
    """The target has files or batches that this query's checkpoint does not know."""

    code = "LAKE_CONFLICT"


@dataclass(frozen=True, slots=True)
class Decision:
    """The attempt at a batch that counts."""

    attempt: str
    counts: Mapping[str, int]
    """What the job reports of the batch: rows and the like."""


Moves = Sequence[tuple[str, str]]
"""(staged, visible) of each file, relative to the folder."""


class Journal:
    """The plans of one query in one folder."""

    def __init__(self, folder: Folder, query: str) -> None:
        self.folder = folder
        self._query = query
        self._home = f"{HIDDEN}/{query}"

    def __repr__(self) -> str:
        return f"<Journal {self.folder.url} query={self._query}>"

    def others(self) -> list[str]:
        """The other queries that have written to the folder."""
        return [name for name in self.folder.names(HIDDEN) if name != self._query]

    def staging(self, batch: int, attempt: str) -> str:
        """Where one attempt at a batch puts its files."""
        return f"{self._home}/staged/{batch}-{attempt}"

    def visible(self, batch: int, number: int, folder: str) -> str:
        """The name of the file `number` of a batch, always the same."""
        name = f"{self._query[:8]}-{batch:08d}-{number:05d}.parquet"
        return f"{folder}/{name}" if folder else name

    def has_batches(self) -> bool:
        """Whether a batch was decided: the plan of the last one always stays."""
        return bool(self._plans())

    def decided(self, batch: int) -> tuple[Decision, Moves] | None:
        """The plan of the batch, if there is one; raises `LakeConflict` if a later batch has one."""
        self._check_latest(batch)
        return self._plan(f"plan-{batch}.json")

    def decide(self, batch: int, decision: Decision, moves: Moves) -> Decision:
        """Writes the plan, and answers the decision that counts: that of the first plan."""
        if self.folder.create(f"{self._home}/plan-{batch}.json", _to_json(decision, moves)):
            try:
                self._check_latest(batch)
            except LakeConflict:
                self.folder.remove(f"{self._home}/plan-{batch}.json")
                raise
            return decision
        first = self.decided(batch)
        assert first is not None, "only a later batch removes a plan"
        return first[0]

    def complete(self, batch: int) -> Moves:
        """Makes the files of the plan visible; answers the moves."""
        plan = self.decided(batch)
        return self._complete(batch, plan[1]) if plan else []

    def prepare(self, batch: int, decision: Decision, moves: Moves) -> None:
        """Writes the plan of one attempt, which counts if another folder or table decides for it."""
        self.folder.create(f"{self._home}/plan-{batch}-{decision.attempt}.json", _to_json(decision, moves))

    def complete_prepared(self, batch: int, attempt: str) -> Moves:
        """Makes the files of the attempt visible that was decided elsewhere."""
        plan = self._plan(f"plan-{batch}-{attempt}.json")
        return self._complete(batch, plan[1], keep=attempt) if plan else []

    def _complete(self, batch: int, moves: Moves, keep: str = "") -> Moves:
        for staged, visible in moves:
            self.folder.move(staged, visible)
        self.folder.remove(f"{self._home}/staged")
        current = f"plan-{batch}-{keep}.json" if keep else f"plan-{batch}.json"
        for name, number in self._plans():
            if number < batch or (number == batch and name != current):
                self.folder.remove(f"{self._home}/{name}")
        return moves

    def _check_latest(self, batch: int) -> None:
        latest = max((number for _, number in self._plans()), default=batch)
        if latest > batch:
            raise LakeConflict(
                f"{self.folder.url} has batch {latest} of this query, but the checkpoint is at batch "
                f"{batch}, so it was set back. Restore the checkpoint that belongs to the folder, or write "
                f"to a new folder with a new checkpoint"
            )

    def _plans(self) -> list[tuple[str, int]]:
        found = map(_PLAN.fullmatch, self.folder.names(self._home))
        return [(match[0], int(match[1])) for match in found if match]

    def _plan(self, name: str) -> tuple[Decision, Moves] | None:
        content = self.folder.read(f"{self._home}/{name}")
        if content is None:
            return None
        document = json.loads(content)
        moves = [(staged, visible) for staged, visible in document["moves"]]
        return Decision(document["attempt"], document["counts"]), moves


def _to_json(decision: Decision, moves: Moves) -> bytes:
    document = {"attempt": decision.attempt, "counts": dict(decision.counts), "moves": list(moves)}
    return json.dumps(document).encode()
