"""Says which records of a replica count as durable: records on disk, or all written records (R17).

A change to `fsync` takes effect at once, and the whole log is flushed. `page-cache` begins once a mark on the
disk says so. It ends when all records that counted without a flush are flushed and the mark is removed.
Neighbours: `storage.folder.page_cache_mark` is the mark, `replica` passes the change to its role.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from tidelog_broker.replication.owner import Done, ReplicaOwner
from tidelog_broker.storage.log.partition_log import PartitionLog

log = structlog.get_logger(__name__)

MARK_RETRY_MS: Final = 1_000
"""Delay before the next try, after the page-cache mark of a log could not be changed."""


class _Timer(Protocol):
    def later(self, ms: int, call: Callable[[], None]) -> None: ...


class DurableReplica(Protocol):
    """The replica that a `Durability` belongs to."""

    log: PartitionLog
    removed: bool

    @property
    def host(self) -> _Timer: ...

    @property
    def owner(self) -> ReplicaOwner: ...

    def write(self, work: Callable[[], object], done: Done, size: int | None = None) -> None: ...

    def durability_changed(self) -> None: ...


class Durability:
    """The durability of one replica: the current setting, and the setting of its stream."""

    __slots__ = ("_counted_until", "_marking", "_replica", "_wanted", "fsync")

    def __init__(self, replica: DurableReplica, *, fsync: bool) -> None:
        """`fsync`: the setting of the stream."""
        self._replica = replica
        self._wanted = fsync
        self.fsync = fsync or not replica.log.page_cache
        """True: durable means on disk. False: durable means written; a mark on the disk says so."""
        self._counted_until = replica.log.end_offset
        """When `fsync` began, records below this offset may have counted without a flush."""
        self._marking = False
        """A change of the mark is being written to the disk."""

    def set(self, *, fsync: bool) -> None:
        """Sets the stream's new setting."""
        self._wanted = fsync
        self._follow()

    def flushed(self) -> None:
        """More of the log is durable."""
        if self._replica.log.page_cache and self._wanted:
            self._follow()

    def _follow(self) -> None:
        replica, one = self._replica, self._replica.log
        if self._marking or replica.removed:
            return
        if self._wanted:
            if not self.fsync:
                self._counted_until = one.end_offset
                self._take(fsync=True)
                replica.owner.flush()
            if one.page_cache and one.durable_offset >= min(self._counted_until, one.end_offset):
                self._mark(one.clear_page_cache)
        elif not one.page_cache:
            self._mark(one.mark_page_cache)
        elif self.fsync:
            self._take(fsync=False)

    def _mark(self, work: Callable[[], None]) -> None:
        self._marking = True

        def done(error: Exception | None) -> None:
            self._marking = False
            if error is None:
                self._follow()
                return
            log.warning(
                "the durability mark of a log could not be changed; the broker tries again",
                partition=repr(self._replica), error=str(error),
            )  # fmt: skip
            self._replica.host.later(MARK_RETRY_MS, self._follow)

        self._replica.write(work, done)

    def _take(self, *, fsync: bool) -> None:
        self.fsync = fsync
        self._replica.durability_changed()
