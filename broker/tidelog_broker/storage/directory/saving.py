"""The saved state of all logs of a data directory: recovery points, high watermarks, log start offsets.

Neighbours: `checkpoint` has the files. `store` and `opening` call this module whenever the saved state of
a log changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import structlog

from tidelog_broker.storage.directory.checkpoint import Checkpoints
from tidelog_broker.storage.directory.retention import Waited
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.points import PartitionKey, RecoveryPoint

log = structlog.get_logger(__name__)


class SavedPoints:
    """The checkpoints of one data directory; many threads may save them."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self._lock = threading.Lock()

    def save(self, logs: Iterable[tuple[PartitionLog, int]]) -> None:
        """Saves recovery points, high watermarks (given with each log) and log start offsets."""
        with self._lock:
            for one, high_watermark in logs:
                self._put(one, high_watermark, one.start_offset)
            self.checkpoints.save()

    def advance_starts(self, logs: Iterable[tuple[PartitionLog, int, int]]) -> None:
        """Moves the starts of logs forward; each log comes with its high watermark and its new start offset.

        The starts are saved first, and a log's own start moves only after that. So a start that a crash
        would undo never looks done, and a start whose save failed does not look as if it were still moving.
        Raises OSError; then no log has moved.
        """
        entries = list(logs)
        with self._lock:
            for one, high_watermark, offset in entries:
                self._put(one, high_watermark, max(one.start_offset, min(offset, one.end_offset)))
            try:
                self.checkpoints.save()
            except OSError:
                for one, _, _ in entries:
                    self.checkpoints.put_log_start_offset(one.key, one.start_offset)
                raise
            for one, _, offset in entries:
                one.start.advance(offset)

    def _put(self, one: PartitionLog, high_watermark: int, start_offset: int) -> None:
        key = one.key
        one.active.save_index()
        self.checkpoints.put_recovery_point(key, one.recovery_point, high_watermark)
        self.checkpoints.put_log_start_offset(key, start_offset)

    def save_waited(self, changed: Mapping[PartitionKey, Waited | None]) -> None:
        """Saves how long the broker has had closed segments that are dated ahead (R18); None: it has none."""
        with self._lock:
            for key, waited in changed.items():
                self.checkpoints.put_waited(key, waited)
            self.checkpoints.save()

    def save_recovery_point(self, one: PartitionLog, point: RecoveryPoint) -> None:
        """Saves a lower recovery point at once, before a truncation cuts below the saved one."""
        self.save_recovery_point_of(one.key, point)

    def save_recovery_point_of(self, key: PartitionKey, point: RecoveryPoint) -> None:
        with self._lock:
            self.checkpoints.lower_recovery_point(key, point)
            self.checkpoints.save()

    def save_restart(self, one: PartitionLog, offset: int) -> None:
        """Saves at once that a log was emptied and begins at `offset`, even if the old log began later."""
        key = one.key
        with self._lock:
            self.checkpoints.put_recovery_point(key, RecoveryPoint(offset, offset, 0), offset)
            self.checkpoints.put_log_start_offset(key, offset)
            self.checkpoints.put_waited(key, None)
            self.checkpoints.save()

    def save_recovered(self, logs: dict[PartitionKey, PartitionLog]) -> None:
        """Saves the state that recovery made durable, so that the next recovery trusts it after any boot."""
        checkpoints = self.checkpoints
        for key, one in logs.items():
            if checkpoints.recovery_point(key) not in (None, one.recovery_point) or one.end_offset:
                checkpoints.put_recovery_point(key, one.recovery_point, checkpoints.high_watermark(key))
            if checkpoints.log_start_offset(key) != one.start_offset:
                checkpoints.put_log_start_offset(key, one.start_offset)
        try:
            checkpoints.save()
        except OSError as error:
            log.warning("checkpoints could not be saved after recovery", error=str(error))

    def forget_stream(self, stream_id: bytes) -> None:
        """Drops the saved state of all partitions of a stream, even of lost partitions without a log.

        The next save writes it.
        """
        with self._lock:
            self.checkpoints.remove_stream(stream_id)

    def forget_partition(self, key: PartitionKey) -> None:
        """Drops the saved state of a partition, durably; raises OSError."""
        with self._lock:
            self.checkpoints.remove_partition(key)
            self.checkpoints.save()
