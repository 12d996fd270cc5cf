"""Starts a cluster on disks that lost power, and holds what it has against what clients were told.

Neighbours: `ledger` says what they were told up to the loss, `power_losses` makes the disks.
"""

from __future__ import annotations

from dataclasses import dataclass

import tidelog
from cluster.ledger import Expected
from cluster.machines import Key, Machines, keys
from simulator.disk import FakeDisk
from tidelog.records import decode_batch, split_batches
from tidelog_broker.storage.log.partition_log import PartitionLog


@dataclass
class Report:
    """Figures of a run."""

    points: int = 0
    again: int = 0
    """Of them: power was lost a second time while the brokers came back."""
    operations: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    checked: int = 0
    """Acknowledged records looked for, over all points."""
    unacknowledged: int = 0
    """Records found beyond the acknowledged ones, over all points."""
    cut_logs: int = 0
    suspect_logs: int = 0
    unclean: int = 0
    """Partitions whose leader was elected among suspect replicas only."""
    leader_epochs: int = 0
    """Begun during the load."""

    def __str__(self) -> str:
        return (
            f"{self.points} power losses of three brokers, {self.again} of them twice, "
            f"in {self.operations} disk operations, "
            f"{self.acknowledged} records acknowledged ({self.unanswered} without an answer) "
            f"in {self.leader_epochs} leader epochs; "
            f"{self.checked} looked for, none missing; {self.unacknowledged} found beyond them; "
            f"{self.cut_logs} tails cut, {self.suspect_logs} of them suspect, "
            f"{self.unclean} elections among suspects only"
        )


async def check(
    machines: Machines, disks: list[FakeDisk], expected: Expected, sent: set[bytes], report: Report
) -> None:
    """Starts the cluster on `disks`, and compares."""
    try:
        await machines.start_all(disks)
        await machines.become_whole()
        _count_recovered(machines, report)
        image = machines.image
        for stream_id, state in expected.streams.items():
            there = stream_id in image.streams
            assert there or state != "there", f"stream {stream_id.hex()} is not there any more"
            assert not there or state != "gone", f"stream {stream_id.hex()} was deleted, and is there again"
        contents = {key: _compare(machines, key, expected, sent, report) for key in keys(image)}
        await _works(machines, contents)
    finally:
        await machines.end_all()


def _count_recovered(machines: Machines, report: Report) -> None:
    partitions = [one for s in machines.services.values() for one in s.broker.partitions.values()]
    report.cut_logs += sum(bool(one.log.cut_bytes) for one in partitions)
    report.suspect_logs += len(machines.suspects())
    images = [machines.image.partition(*key) for key in keys(machines.image)]
    report.unclean += sum(one is not None and one.unclean_epoch > 0 for one in images)


def _compare(
    machines: Machines, key: Key, expected: Expected, sent: set[bytes], report: Report
) -> dict[int, bytes]:
    """The records that all replicas of a partition hold, by offset."""
    replicas = machines.replicas(key)
    one, *others = [_data(replica.log) for replica in replicas]
    assert all(other == one for other in others), f"replicas differ: {replicas}"
    log = replicas[0].log
    found = _records(one, log.start_offset)
    records = {
        offset: value
        for offset, value in expected.records.get(key, {}).items()
        if offset >= min(log.start_offset, expected.start_max[key])
    }
    missing = [offset for offset, value in records.items() if found.get(offset) != value]
    assert not missing, f"{replicas} lack acknowledged records at {missing[:10]}"
    strange = [offset for offset, value in found.items() if value not in sent]
    assert not strange, f"{log} holds what nobody sent at {strange[:10]}"
    assert len(set(found.values())) == len(found), f"{log} holds a record twice"
    assert list(found) == list(range(log.start_offset, log.end_offset)), f"gaps in {log}"
    assert log.start_offset >= expected.start_min[key], f"deleted records are back in {log}"
    report.checked += len(records)
    report.unacknowledged += len(found) - len(records)
    return found


async def _works(machines: Machines, contents: dict[Key, dict[int, bytes]]) -> None:
    """Clients read all of it, and new records get the offsets behind it."""
    ends = {key: machines.replicas(key)[0].log.end_offset for key in contents}
    async with tidelog.connect(machines.addresses) as client:
        for stream in machines.image.streams.values():
            read: dict[Key, dict[int, bytes | None]] = {key: {} for key in contents if key[0] == stream.id}
            async for record in client.reader(stream.name, follow=False):
                read[stream.id, record.partition][record.offset] = record.value
            for key, records in read.items():
                assert records == contents[key], f"{machines.replicas(key)} are read otherwise"
                async with client.producer(stream.name, linger_ms=0) as producer:
                    receipt = await producer.send(b"after", partition=key[1])
                assert receipt.offset == ends[key], f"{receipt} at {ends[key]}"


def _data(log: PartitionLog) -> bytes:
    """All of it, as it lies."""
    offset, place, parts = log.start_offset, None, []
    while (chunk := log.reader.read(offset, 4 << 20, log.end_offset, place)) is not None:
        parts += [bytes(part) for part in chunk.parts]
        offset, place = chunk.next_offset, chunk.place
    return b"".join(parts)


def _records(data: bytes, start: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for header, body in split_batches(data):
        values = decode_batch(body, header).column("value").to_pylist()
        found.update(enumerate(values, header.base_offset))
    return {offset: value for offset, value in found.items() if offset >= start}
