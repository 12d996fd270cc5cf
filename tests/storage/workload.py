"""A scripted run over a disk that may crash at any operation, with a model of every partition.

It has what a broker does to its logs: appends with and without producers and message ids,
several in one write; flushes; page-cache writing; rolls; retention; truncation; new epochs;
checkpoints; a full disk; a clean stop and another start.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.disk import FakeDisk
from storage.batches import STREAM_ID, T0, item, records
from storage.crash_model import Model, Written
from tidelog_broker.storage.directory.opening import Opened, Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.guard.append_guard import GuardLimits
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import Appended, AppendItem, LogConfig

ROOT = "/data"
LIMITS = GuardLimits(producers_max=3, dedupe_window_us=40_000_000, dedupe_count_max=6)
WANTED = [
    Wanted("orders", STREAM_ID, 0, LogConfig(segment_bytes=2600, guard=LIMITS)),
    Wanted("orders", STREAM_ID, 1, LogConfig(segment_bytes=6000, guard=LIMITS)),
]
OTHER = Wanted("late", bytes(range(16)), 0, LogConfig(segment_bytes=5000, guard=LIMITS))

Key = tuple[bytes, int]


class Run:
    """The state of the script."""

    def __init__(self, disk: FakeDisk, *, whole: bool = False) -> None:
        """`whole`: each flush is one of the whole disk."""
        self.disk = disk
        self.whole = whole
        disk.make_dir(ROOT)
        disk.sync_dir("/")
        self.models: dict[Key, Model] = {}
        self.wanted: list[Wanted] = []
        """Partitions whose creation was answered."""
        self.creating: Wanted | None = None
        self.now_us = T0
        self.epoch = 0
        self.same_boot = False
        self.sequences: dict[tuple[Key, int], int] = {}
        self.store: LogStore
        self.logs: dict[Key, PartitionLog] = {}

    def start(self) -> None:
        self.store = LogStore(self.disk, ROOT, volume=self.disk.open_volume("/"))
        opened: Opened = self.store.opener.open_all(self.wanted, same_boot=self.same_boot)
        assert not opened.lost, opened.lost
        self.logs = opened.logs
        self.epoch += 1
        self.same_boot = True

    def create(self, wanted: Wanted) -> None:
        self.creating = wanted
        key = (wanted.stream_id, wanted.partition)
        self.models[key] = Model(LIMITS)
        self.logs[key] = self.store.opener.create(wanted)
        self.wanted.append(wanted)
        self.creating = None

    def append(self, key: Key, *items: AppendItem) -> None:
        log, model = self.logs[key], self.models[key]
        self.now_us += 1_500_000
        planned, base = [], log.end_offset
        for one in items:
            planned.append(
                Written.of(one, log, base, self.epoch, max(self.now_us, log.writer.last_append_us))
            )
            base = planned[-1].header.next_offset
        model.uncertain = tuple(planned)
        outcomes = log.writer.append(items, leader_epoch=self.epoch, now_us=self.now_us)
        stays = [
            batch for batch, outcome in zip(planned, outcomes, strict=True) if isinstance(outcome, Appended)
        ]
        assert stays == planned[: len(stays)]
        model.uncertain = ()
        model.written = (*model.written, *stays)

    def produce(self, key: Key, producer_id: int, count: int, size: int = 20) -> AppendItem:
        sequence = self.sequences.get((key, producer_id), 0)
        self.sequences[key, producer_id] = sequence + count
        return item(records(count, size), producer_id=producer_id, sequence=sequence)

    def sync(self, *keys: Key) -> None:
        self.store.sync([self.logs[key] for key in keys], whole=self.whole)
        for key in keys:
            self.models[key].acknowledged = self.models[key].end

    def checkpoint(self) -> None:
        self.store.saved.save([(log, log.durable_offset) for log in self.logs.values()])
        for key, log in self.logs.items():
            self.models[key].start_min = log.start_offset

    def forget_below(self, key: Key, offset: int) -> None:
        log, model = self.logs[key], self.models[key]
        model.start_max = max(model.start_max, offset)
        log.start.advance(offset)
        self.checkpoint()
        log.start.remove_files_below()

    def truncate(self, key: Key, offset: int) -> None:
        log, model = self.logs[key], self.models[key]
        model.acknowledged = min(model.acknowledged, offset)
        holding = next(
            (b for b in model.written if b.header.base_offset <= offset < b.header.next_offset), None
        )
        if holding is not None:
            model.acknowledged = min(model.acknowledged, holding.header.base_offset)
        end = log.cutter.truncate(offset, lambda point: self.store.saved.save_recovery_point(log, point))
        model.cut(end)
        assert model.end == end
        model.acknowledged = end
        for producer in list(self.sequences):
            if producer[0] == key:
                del self.sequences[producer]

    def stop(self) -> None:
        self.store.close_clean([(log, log.end_offset) for log in self.logs.values()])
        for model in self.models.values():
            model.acknowledged = model.end


def script(run: Run) -> Iterator[str]:
    """Runs step by step; what it yields names the step that was done."""
    a, b = ((w.stream_id, w.partition) for w in WANTED)
    c = (OTHER.stream_id, OTHER.partition)
    run.start()
    for wanted in WANTED:
        run.create(wanted)
    yield "created"
    run.append(a, item(records(3)))
    yield "written, not flushed"
    run.sync(a)
    run.append(a, run.produce(a, 7, 2), run.produce(a, 7, 3), item(records(1), ids=["m1"]))
    run.append(b, run.produce(b, 1, 4, 300))
    run.sync(a, b)
    run.checkpoint()
    yield "flushed and checkpointed"
    for number in range(6):
        run.append(a, run.produce(a, 7 + number % 2, 2, 60), item(records(2), ids=[f"n{number}", None]))
        if number % 2:
            run.sync(a)
    yield "rolled while flushing"
    run.append(b, item(records(5, 700)), item(records(2, 700)), item(records(5, 500)))
    run.append(b, run.produce(b, 2, 30))
    run.checkpoint()
    yield "rolled in page-cache mode"
    run.epoch += 1
    run.append(a, run.produce(a, 7, 1))
    run.append(b, run.produce(b, 1, 1))
    run.sync(a)
    run.checkpoint()
    yield "a new epoch"
    run.create(OTHER)
    run.append(c, item(records(40, 50)), item(records(2)))
    run.sync(b, c)
    yield "a stream created late"
    run.append(c, item(records(1)))
    run.disk.capacity = run.disk._used + 700
    run.append(c, item(records(3)), item(records(20, 60)))
    run.append(a, run.produce(a, 99, 200))
    del run.sequences[a, 99]
    run.disk.capacity = None
    run.append(c, item(records(2)))
    run.sync(c)
    yield "the disk was full"
    run.forget_below(a, run.logs[a].segments[2].base_offset + 1)
    run.append(a, item(records(2)))
    yield "retention removed segments"
    run.sync(a)
    run.append(b, item(records(3, 900)), run.produce(b, 5, 2))
    run.truncate(b, run.logs[b].end_offset - 4)
    run.append(b, item(records(2)))
    run.sync(b)
    yield "truncated a little"
    run.epoch += 1
    run.append(b, item(records(9, 600)), item(records(9, 600)))
    run.checkpoint()
    run.truncate(b, run.logs[b].segments[1].base_offset + 3)
    run.append(b, item(records(4, 100)))
    run.sync(b)
    run.checkpoint()
    yield "truncated over segments"
    run.stop()
    yield "stopped"
    run.start()
    run.append(a, item(records(2)), item(records(1), ids=["m9"]))
    run.append(b, run.produce(b, 11, 2))
    run.sync(a)
    yield "started again"
    run.append(a, *(item(records(4, 100)) for _ in range(8)))
    run.append(c, item(records(6, 400)))
    run.sync(a, b, c)
    run.checkpoint()
    run.forget_below(c, run.logs[c].end_offset)
    yield "done"
