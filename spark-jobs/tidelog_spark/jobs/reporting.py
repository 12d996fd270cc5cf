"""What a job tells about itself: lines on standard output, a report, and its last words."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final

LAST_WORDS_BYTES_MAX: Final = 4_096
"""What Kubernetes keeps of a termination message."""


def say(event: str, **facts: Any) -> None:
    """One line of JSON."""
    line = {"at": _now(), "event": event, **facts}
    sys.stdout.write(json.dumps(line, default=str) + "\n")
    sys.stdout.flush()


@dataclass(slots=True)
class Report:
    """The sums of a run. `file` gets them after each batch and at the end.

    Spark calls `add` and `save` in a thread of the query, the driver calls `save` in its own.
    """

    file: Path | None = None
    started_at: str = field(default_factory=lambda: _now())
    counts: dict[str, int] = field(default_factory=dict)
    """The sums of what batches count: ``rows`` and, by job, ``deadLetters``, ``files`` and others."""
    batches: int = 0
    attempts: int = 0
    offsets: Mapping[str, Any] = field(default_factory=dict)
    """stream → partition → the next offset to read."""
    lag: int | None = None
    """Records that are in the streams and not yet written; None: not known yet."""
    finished_at: str | None = None
    last_batch_at: str | None = None
    no_executor_since: str | None = None
    """Since when the job has no executor; None: it has one, or needs none."""
    _saving: Lock = field(default_factory=Lock, repr=False)

    def add(self, counts: Mapping[str, int]) -> None:
        """Notes a finished batch."""
        self.batches += 1
        self.count(counts)
        self.last_batch_at = _now()

    def count(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def note_executors(self, count: int) -> None:
        """Notes how many executors the job has, if this changes whether it has any."""
        if (count == 0) == (self.no_executor_since is not None):
            return
        self.no_executor_since = None if count else _now()
        self.save()

    @property
    def rows(self) -> int:
        """Rows that the job has written."""
        return self.counts.get("rows", 0)

    def document(self) -> dict[str, Any]:
        return {
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
            "lastBatchAt": self.last_batch_at,
            "noExecutorSince": self.no_executor_since,
            **self.counts,
            "batches": self.batches,
            "attempts": self.attempts,
            "offsets": self.offsets,
            "lag": self.lag,
        }

    def finish(self) -> None:
        self.finished_at = _now()
        self.save()

    def save(self) -> None:
        """Replaces the file in one step, so that a reader never finds half of it."""
        if self.file is None:
            return
        with self._saving:
            draft = self.file.with_name(f".{self.file.name}.draft")
            draft.write_text(json.dumps(self.document(), indent=2) + "\n")
            os.replace(draft, self.file)


def last_words(sentence: str, file: Path | None) -> None:
    """The sentence as the last line on standard error, and in `file`."""
    sys.stderr.write(f"error: {sentence}\n")
    sys.stderr.flush()
    if file is None:
        return
    try:
        file.write_bytes(sentence.encode()[:LAST_WORDS_BYTES_MAX])
    except OSError as error:
        say("warning", message=f"the last words cannot be written to {file}: {error.strerror}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
