"""A metadata log on a fake disk, with segments so small that they roll."""

from __future__ import annotations

from simulator.disk import FakeDisk
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.raft.log import RaftLog, create_raft_log
from tidelog_broker.storage.raft.recovery import open_raft_log

RAFT = "/data/raft"
ME = Voter(0, b"d" * 16)
OTHER = Voter(3, b"e" * 16)
VOTERS = Configuration((ME,))
SEGMENT_BYTES = 1000


def entry(index: int, term: int = 1, size: int = 20) -> Entry:
    return Entry(index, term, EntryType.COMMAND, bytes([index % 256]) * size)


def new_disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_dir("/data")
    disk.sync_dir("/")
    create_raft_log(disk, RAFT, HardState(term=1, vote=ME), [entry(1)])
    return disk


def open_log(disk: FakeDisk, *, same_boot: bool = False, reserve_bytes: int = 0) -> RaftLog:
    reserve = Reserve(disk, "/data", reserve_bytes)
    reserve.restore()
    return open_raft_log(disk, RAFT, same_boot=same_boot, reserve=reserve, segment_bytes=SEGMENT_BYTES)


def append(log: RaftLog, *indexes: int, term: int = 1) -> None:
    log.append([entry(index, term) for index in indexes])
    log.sync()


def content(log: RaftLog) -> list[Entry]:
    return log.entries(log.first_index, log.last_index + 1)


def names(disk: FakeDisk) -> list[str]:
    return disk.list(RAFT)
