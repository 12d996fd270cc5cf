"""Loss of power at random points of a real broker's run under load (DESIGN 16).

A broker runs in this process over `RecordingFiles`. gRPC clients (pipelined batches, with
and without a producer id, and plain records), NATS publishers and a caller inside the
broker write to `fsync` streams. Each acknowledgement is kept with the number of disk
operations that had been performed when it came. Then, for random points of the
history, the disk is rebuilt as a loss of power could have left it, recovered as after a
boot, and read: every record acknowledged before the point must be there, at its offset,
and no log may hold anything that was not sent.

``python -m broker.crash_points [POINTS [SEED]]`` (with tests on the path) runs it by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from nats.aio.client import Client

import nats
from simulator.disk import FakeDisk
from support.api import Api, batch, record
from support.nats_server import NatsServer
from support.recording_files import History, RecordingFiles, Replay
from support.waiting import until
from tidelog.errors import TidelogError
from tidelog.records import decode_batch, split_batches
from tidelog_broker.config.settings import Settings
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import decode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.hosting.hosted_partitions import log_config
from tidelog_broker.model import EntryType
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.platform import this_machine
from tidelog_broker.service import Service
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.volume_flush import Judgement
from tidelog_broker.storage.raft.recovery import open_raft_log
from tidelog_broker.writing import flush_rounds
from tidelog_broker.writing.append_requests import RecordsAppend, RecordsAppended
from tidelog_broker.writing.record_columns import RecordColumns
from tidelog_proto import log_pb2

SEGMENT_BYTES = 256 << 10
"""Small, so that a run rolls segments many times."""

LOAD_SECONDS_MAX = 60.0

VOUCHED = Judgement(True, "the test says so: what it asks is what reached the disk by then")

Key = tuple[bytes, int]


@dataclass
class Acknowledged:
    """What clients were told, and when."""

    history: History
    records: list[tuple[int, Key, int, bytes]] = field(default_factory=list)
    """(operations performed, partition, offset, value)"""
    sent: set[bytes] = field(default_factory=set)

    def add(self, key: Key, offset: int, value: bytes) -> None:
        self.records.append((len(self.history), key, offset, value))


@dataclass
class Report:
    """Figures of a run."""

    points: int = 0
    operations: int = 0
    acknowledged: int = 0
    checked: int = 0
    """Acknowledged records looked for, over all points."""
    unacknowledged: int = 0
    """Records found beyond the acknowledged ones, over all points."""
    cut_logs: int = 0
    suspect_logs: int = 0

    def __str__(self) -> str:
        return (
            f"{self.points} points of {self.operations} disk operations, "
            f"{self.acknowledged} records acknowledged; {self.checked} looked for, none missing; "
            f"{self.unacknowledged} found beyond them; "
            f"{self.cut_logs} tails cut, {self.suspect_logs} of them suspect"
        )


async def run(folder: Path, *, points: int, batches: int, seed: int, syncfs: bool = False) -> Report:
    """Loads a broker with about `batches` of each producer, then checks `points` crashes.

    `syncfs`: every flush round is one flush of the file system, whichever that is. Raises
    AssertionError with what was lost, where, and the seed.
    """
    with contextlib.ExitStack() as patches:
        if syncfs:
            patches.enter_context(mock.patch.object(flush_rounds, "VOLUME_FLUSH_LOGS_MIN", 1))
        return await _run(folder, points=points, batches=batches, seed=seed, syncfs=syncfs)


async def _run(folder: Path, *, points: int, batches: int, seed: int, syncfs: bool) -> Report:
    rng = random.Random(seed)
    files = RecordingFiles()
    data = str(folder.resolve() / "data")
    format_solo(files, data, cluster_id=bytes(15) + b"c", broker_id=0, directory_id=bytes(15) + b"d")
    acknowledged = Acknowledged(files.history)
    started = len(files.history)
    with NatsServer() as server:
        settings = Settings(
            data_dir=Path(data), listeners=["internal=127.0.0.1:0"], http="", nats=server.url,
            checkpoint_interval_ms=50, sweep_interval_ms=200, disk_reserve_bytes=0,
        )  # fmt: skip
        machine = this_machine(files)
        if syncfs:
            machine = machine._replace(judge_volume=lambda wish, path: VOUCHED)
        service = Service(settings, machine)
        await service.start()
        try:
            async with asyncio.timeout(LOAD_SECONDS_MAX):
                await _load(service, server.url, acknowledged, batches, rng)
            ended = len(files.history)
        finally:
            await service.stop()
    report = Report(operations=ended - started, acknowledged=len(acknowledged.records))
    replay = Replay(files.history.events, str(folder.resolve()))
    waiting = iter(sorted(acknowledged.records, key=lambda entry: entry[0]))
    upcoming = next(waiting, None)
    expected: dict[Key, dict[int, bytes]] = defaultdict(dict)
    for point in sorted(rng.sample(range(started, ended), points)):
        while upcoming is not None and upcoming[0] <= point:
            expected[upcoming[1]][upcoming[2]] = upcoming[3]
            upcoming = next(waiting, None)
        replay.advance(point)
        _check(replay.crash(rng), data, expected, acknowledged.sent, report, f"point {point}, seed {seed}")
        report.points += 1
    return report


async def _load(
    service: Service, url: str, acknowledged: Acknowledged, batches: int, rng: random.Random
) -> None:
    numbers = itertools.count()

    def value(size_max: int = 600) -> bytes:
        one = b"%d:" % next(numbers) + rng.randbytes(rng.randrange(1, size_max))
        acknowledged.sent.add(one)
        return one

    async with Api(service.listeners[0].target) as api:
        sizes = {"segment_bytes": SEGMENT_BYTES, "batch_bytes_max": SEGMENT_BYTES}
        busy = await api.create("busy", partitions=2, **sizes)
        small = await api.create("small", subject="small.>", **sizes)
        client = await nats.connect(url)
        try:
            await asyncio.gather(
                _batches(api, busy, 0, acknowledged, batches, value, None),
                _batches(api, busy, 1, acknowledged, batches, value, await _producer_id(api)),
                _large(api, busy, acknowledged, batches // 10, value),
                _plain(api, small, acknowledged, batches, value),
                _nats(client, small, acknowledged, batches, value),
                _inside(service.broker, small, acknowledged, batches, value),
                _churn(api, acknowledged, batches),
            )
        finally:
            await client.close()


async def _producer_id(api: Api) -> int:
    response: log_pb2.InitProducerResponse = await api.log.InitProducer(log_pb2.InitProducerRequest())
    return response.producer_id


async def _batches(api, stream, partition, acknowledged, count, value, producer_id) -> None:  # type: ignore[no-untyped-def]
    """Pipelined batches, up to five unanswered."""
    call = api.produce()
    unanswered: list[list[bytes]] = []
    sequence = 0

    async def one_answer() -> None:
        response = await call.answer()
        assert response.HasField("receipt"), response.error
        for place, one in enumerate(unanswered.pop(0)):
            acknowledged.add((stream.stream_id, partition), response.receipt.base_offset + place, one)

    for number in range(count):
        values = [value() for _ in range(1 + number % 7)]
        unanswered.append(values)
        named = {} if producer_id is None else {"producer_id": producer_id, "sequence": sequence}
        await call.send(stream, batch(*values, **named), partition=partition)
        sequence += len(values)
        while len(unanswered) >= 5:
            await one_answer()
    while unanswered:
        await one_answer()
    await call.call.done_writing()


async def _large(api, stream, acknowledged, count, value) -> None:  # type: ignore[no-untyped-def]
    """Batches over many pages, written in the write thread."""
    call = api.produce()
    for number in range(count):
        values = [value(40_000) for _ in range(4)]
        response = await call.produce(stream, batch(*values), partition=number % 2)
        for place, one in enumerate(values):
            key = (stream.stream_id, number % 2)
            acknowledged.add(key, response.receipt.base_offset + place, one)
    await call.call.done_writing()


async def _plain(api, stream, acknowledged, count, value) -> None:  # type: ignore[no-untyped-def]
    """Publish requests, three at a time."""

    async def one(number: int) -> None:
        values = [value(), value()]
        records = [record(v, message_id=f"g{number}-{place}") for place, v in enumerate(values)]
        for receipt, v in zip(await api.publish(stream, *records), values, strict=True):
            acknowledged.add((stream.stream_id, 0), receipt.offset, v)

    for start in range(0, count, 3):
        await asyncio.gather(*(one(number) for number in range(start, start + 3)))


async def _nats(client: Client, stream, acknowledged, count, value) -> None:  # type: ignore[no-untyped-def]
    """JetStream publishes, half of them with a message id."""
    js = client.jetstream()
    for number in range(count):
        one = value()
        headers = {"Nats-Msg-Id": f"n{number}"} if number % 2 else None
        ack = await js.publish(f"small.{number % 5}", one, headers=headers)
        acknowledged.add((stream.stream_id, 0), ack.seq - 1, one)


async def _inside(broker: Broker, stream, acknowledged, count, value) -> None:  # type: ignore[no-untyped-def]
    """Appends from within: the acknowledgement is seen at the very moment it is given."""
    partition = broker.leading(stream.stream_id, 0)
    loop = asyncio.get_running_loop()
    for _ in range(count):
        one, answered = value(), loop.create_future()

        def done(outcome: RecordsAppended | TidelogError, one=one, answered=answered) -> None:  # type: ignore[no-untyped-def]
            assert isinstance(outcome, RecordsAppended), outcome
            acknowledged.add((stream.stream_id, 0), outcome.offsets[0], one)
            answered.set_result(None)

        records = RecordColumns()
        records.add(one, int(time.time() * 1e6))
        broker.append(partition, RecordsAppend(records, done))
        await answered


async def _churn(api: Api, acknowledged: Acknowledged, batches: int) -> None:
    """Streams that come, and lose their records again, beside it all."""
    # Spread over the run by its own progress: the others are told of more than twelve records
    # for each of `batches`.
    every = 10 * batches // max(2, batches // 40)
    for due in range(0, 10 * batches, every):
        await until(
            lambda due=due: len(acknowledged.records) >= due,  # type: ignore[misc]
            f"{due} records acknowledged",
            LOAD_SECONDS_MAX,
        )
        stream = await api.create()
        await api.publish(stream, b"short-lived")
        request = log_pb2.DeleteRecordsRequest(stream_id=stream.stream_id)
        await api.log.DeleteRecords(request)


def _check(
    disk: FakeDisk,
    path: str,
    expected: dict[Key, dict[int, bytes]],
    sent: set[bytes],
    report: Report,
    where: str,
) -> None:
    """Recovers `disk` as the next boot would, and compares."""
    directory = DataDirectory.open(
        disk, path, reserve_bytes=0, read_boot_id=lambda: "another boot", lock=lambda path: lambda: None
    )
    assert not directory.same_boot
    image = _image(directory)
    store = LogStore(disk, path)
    opened = store.opener.open_all(_wanted(image), same_boot=False)
    assert not opened.lost, f"{where}: {opened.lost}"
    for key, records in expected.items():
        log = opened.logs[key]
        found = _read(log)
        missing = [offset for offset, value in records.items() if found.get(offset) != value]
        assert not missing, f"{where}: {log} lacks acknowledged records at {missing[:10]}"
        strange = [offset for offset, value in found.items() if value not in sent]
        assert not strange, f"{where}: {log} holds what nobody sent at {strange[:10]}"
        assert list(found) == list(range(log.start_offset, log.end_offset)), f"{where}: gaps in {log}"
        report.checked += len(records)
        report.unacknowledged += len(found) - len(records)
    report.cut_logs += sum(bool(log.cut_bytes) for log in opened.logs.values())
    report.suspect_logs += sum(log.suspect for log in opened.logs.values())
    for log in opened.logs.values():
        log.close()


def _image(directory: DataDirectory) -> ClusterImage:
    """What the metadata log says: all of it is committed, because its only voter has it on disk."""
    raft_log = open_raft_log(
        directory.files, directory.raft_folder, same_boot=directory.same_boot, reserve=directory.reserve
    )
    snapshot = raft_log.snapshot
    image = ClusterImage() if snapshot is None else decode_image(snapshot.data)
    for entry in raft_log.entries(raft_log.snapshot_index + 1, raft_log.last_index + 1):
        if entry.type is EntryType.COMMAND:
            image = apply(image, decode_command(entry.payload), entry.index)
    raft_log.close()
    return image


def _wanted(image: ClusterImage) -> list[Wanted]:
    return [
        Wanted(stream.name, stream.id, number, log_config(stream.config))
        for stream in image.streams.values()
        for number in range(len(stream.partitions))
    ]


def _read(log) -> dict[int, bytes]:  # type: ignore[no-untyped-def]
    found: dict[int, bytes] = {}
    offset, place = log.start_offset, None
    while (chunk := log.reader.read(offset, 4 << 20, log.end_offset, place)) is not None:
        for header, body in split_batches(b"".join(chunk.parts)):
            values = decode_batch(body, header).column("value").to_pylist()
            found.update(enumerate(values, header.base_offset))
        offset, place = chunk.next_offset, chunk.place
    return found


def main(arguments: list[str]) -> None:
    points = int(arguments[0]) if arguments else 200
    seed = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().randrange(1 << 32)
    with tempfile.TemporaryDirectory(prefix="tidelog-crash-") as folder:
        began = time.perf_counter()
        report = asyncio.run(run(Path(folder), points=points, batches=600, seed=seed))
        sys.stdout.write(f"seed {seed}: {report}; {time.perf_counter() - began:.1f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
