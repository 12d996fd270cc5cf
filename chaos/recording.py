"""The history of a run: what the clients were told and what they read. One history for each stream."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from tidelog import FetchedBatch
from tidelog.history import History, Outcome, Producer, Read, Write, runs_of


class Pause(NamedTuple):
    """A time without an acknowledgement."""

    seconds: float
    where: str
    """The stream and partition."""

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s in {self.where}"


class Recording:
    """The histories, and a sentence for each event that must never happen."""

    def __init__(self) -> None:
        self.histories: dict[str, History] = {}
        self.failures: list[str] = []
        self.errors: dict[str, list[str]] = {}
        """Errors that clients got, by the kind of client."""
        self.operations = 0
        """How many writes and fetched batches."""
        self.acknowledged = 0
        """How many records."""
        self.longest_pause = Pause(0.0, "nowhere")
        """The longest time without an acknowledgement in one partition."""
        self._newest_pauses: dict[str, Pause] = {}
        """By stream: the longest pause since `take_pauses`."""
        self._acknowledged_at: dict[tuple[str, int], float] = {}
        self._producers = count(1)
        self._readers = count(1)
        self._last_write: dict[tuple[str, int, int], int] = {}

    def history(self, stream: str) -> History:
        return self.histories.setdefault(stream, History())

    def new_producer(self, stream: str, name: str) -> int:
        number = next(self._producers)
        self.history(stream).producers[number] = Producer(f"{name} {number}")
        return number

    def new_reader(self) -> int:
        return next(self._readers)

    def wrote(self, stream: str, write: Write, at: float) -> None:
        """Records the outcome of a write; `at`: when, on the event loop's clock."""
        self.operations += 1
        history = self.history(stream)
        if write.outcome is Outcome.ACKNOWLEDGED:
            self.acknowledged += write.records
            before_at = self._acknowledged_at.get((stream, write.partition), at)
            pause = Pause(at - before_at, f"{stream}/{write.partition}")
            self.longest_pause = max(self.longest_pause, pause)
            self._newest_pauses[stream] = max(self._newest_pauses.get(stream, pause), pause)
            self._acknowledged_at[stream, write.partition] = at
            key = (stream, write.producer, write.partition)
            index = self._last_write.get(key)
            if index is not None and _continues(history.writes[index], write):
                before = history.writes[index]
                history.writes[index] = before._replace(records=before.records + write.records)
                return
            self._last_write[key] = len(history.writes)
        history.writes.append(write)

    def saw(self, reader: int, batch: FetchedBatch) -> None:
        """Records a batch that was read. Raises ValueError for records that no client of this run wrote."""
        self.operations += 1
        reads = self.history(batch.stream).reads
        for index, producer, first, records in runs_of(batch.columns.column("value")):
            reads.append(Read(reader, batch.partition, batch.base_offset + index, producer, first, records))

    def silence(self, now: float) -> dict[str, float]:
        """By stream: how long one of its partitions has had no acknowledgement, after its first one."""
        found: dict[str, float] = {}
        for (stream, _), at in self._acknowledged_at.items():
            found[stream] = max(found.get(stream, 0.0), now - at)
        return found

    def take_pause(self) -> Pause:
        """The longest pause that ended since the last call."""
        return max(self.take_pauses().values(), default=Pause(0.0, "nowhere"))

    def take_pauses(self) -> dict[str, Pause]:
        """By stream: the longest pause that ended since the last call."""
        found, self._newest_pauses = self._newest_pauses, {}
        return found

    def told(self, who: str, error: Exception) -> None:
        """Records an error that a client got, after all retries of the library."""
        self.errors.setdefault(who, []).append(f"{type(error).__name__}: {error}")

    def failed(self, sentence: str) -> None:
        """Records an event that must never happen: an anomaly of the run."""
        self.failures.append(sentence)


def _continues(before: Write, write: Write) -> bool:
    return (
        before.outcome is Outcome.ACKNOWLEDGED
        and before.offset is not None
        and write.offset == before.offset + before.records
        and write.first == before.first + before.records
    )
