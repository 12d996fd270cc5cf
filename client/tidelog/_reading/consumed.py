"""The records that the consumer has taken from those that were fetched; positions count only them (R13)."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog._reading.fetching import FetchedBatch
from tidelog.model import Position, Record


class Consumed:
    """The consumer takes batches whole or record by record, and may alternate."""

    __slots__ = ("_batch", "_positions", "_row", "_rows")

    def __init__(self) -> None:
        self._positions: dict[int, Position] = {}
        self._rows: Iterator[Record] = iter(())
        self._batch: FetchedBatch | None = None
        """The batch that the consumer takes record by record."""
        self._row: Record | None = None
        """The last record that was taken from it; None: none yet."""

    @property
    def positions(self) -> dict[int, Position]:
        """The next position, by partition."""
        found = dict(self._positions)
        if self._row is not None:
            found[self._row.partition] = Position(self._row.offset + 1, self._row.leader_epoch)
        return found

    def begin(self, partition: int, position: Position) -> None:
        """Sets the position at which reading a partition starts."""
        self._positions[partition] = position

    def take(self, batch: FetchedBatch) -> FetchedBatch:
        """The consumer gets a whole batch."""
        self._positions[batch.partition] = batch.position
        return batch

    def passes(self, batch: FetchedBatch) -> bool:
        """Whether `batch` has no rows: then only the position moves."""
        if batch.columns.num_rows:
            return False
        self.take(batch)
        return True

    def open(self, batch: FetchedBatch) -> None:
        """The consumer gets a batch record by record, through `next_row`."""
        self._batch, self._row, self._rows = batch, None, batch.records()

    def next_row(self) -> Record | None:
        """The next record of the open batch; None after the last."""
        for row in self._rows:
            self._row = row
            return row
        if self._batch is not None:
            self.take(self._batch)
            self._batch = self._row = None
        return None

    def rest(self) -> FetchedBatch | None:
        """The rest of the open batch, which the consumer takes whole; None: nothing is left."""
        batch, row = self._batch, self._row
        self._rows, self._batch, self._row = iter(()), None, None
        if batch is None:
            return None
        if row is None:
            return self.take(batch)
        self.take(batch)
        rest = batch.after(row.offset)
        return rest if rest.columns.num_rows else None
