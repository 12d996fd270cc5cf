"""Stores and logs to test with."""

from __future__ import annotations

from simulator.disk import FakeDisk
from storage.batches import STREAM_ID, T0, item, records
from tidelog_broker.storage.directory.opening import Opened, Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.guard.append_guard import GuardLimits
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import Appended, AppendItem, LogConfig

ROOT = "/data"
KEY = (STREAM_ID, 0)


class Bench:
    """One partition on a fake disk, and how it is opened again."""

    def __init__(
        self, segment_bytes: int = 1 << 20, guard: GuardLimits | None = None, disk: FakeDisk | None = None
    ) -> None:
        """`disk`: one with something in `ROOT` already."""
        if disk is None:
            disk = FakeDisk()
            disk.make_dir(ROOT)
            disk.sync_dir("/")
        self.disk = disk
        self.wanted = Wanted("orders", STREAM_ID, 0, LogConfig(segment_bytes, guard=guard or GuardLimits()))
        self.store = LogStore(self.disk, ROOT)
        self.log = self.store.opener.create(self.wanted)
        self.folder = self.log.folder
        self.epoch = 1

    def append(self, *items: AppendItem, now_us: int = T0) -> list[Appended]:
        """Appends what must not be refused."""
        outcomes = self.log.writer.append(items, leader_epoch=self.epoch, now_us=now_us)
        appended = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        assert len(appended) == len(items), outcomes
        return appended

    def fill(self, batches: int, count: int = 3, size: int = 40) -> None:
        """Batches whose values and timestamps tell their offsets."""
        for _ in range(batches):
            end = self.log.end_offset
            times = [T0 + end + number for number in range(count)]
            self.append(item(records(count, size, first=end), timestamps=times))

    def sync(self) -> None:
        self.store.sync([self.log])

    def checkpoint(self) -> None:
        self.store.saved.save([(self.log, self.log.durable_offset)])

    def stop(self) -> None:
        self.store.close_clean([(self.log, self.log.end_offset)])

    def open(self, *, same_boot: bool = True) -> Opened:
        """Starts again on the same disk."""
        self.store = LogStore(self.disk, ROOT)
        return self.store.opener.open_all([self.wanted], same_boot=same_boot)

    def reopen(self, *, same_boot: bool = True) -> PartitionLog:
        opened = self.open(same_boot=same_boot)
        assert not opened.lost, opened.lost
        self.log = opened.logs[KEY]
        return self.log

    def truncate(self, offset: int) -> int:
        return self.log.cutter.truncate(
            offset, lambda point: self.store.saved.save_recovery_point(self.log, point)
        )

    def segment_path(self, number: int) -> str:
        return self.log.segments[number].path
