"""One node alone: what it promises and when, and the bounds of what it takes on."""

from __future__ import annotations

import random

import pytest

from raft.raft_cluster import TIMES, voter
from raft.raft_disk import MemoryDisk
from tidelog.errors import InvalidRequest
from tidelog_broker.core.raft import leading, log, reading, uncommitted
from tidelog_broker.core.raft.errors import Busy, NotRaftLeader
from tidelog_broker.core.raft.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    Message,
    SnapshotRequest,
    VoteRequest,
    VoteResponse,
)
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.ready import Ready
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Snapshot

ME, LEADER, OTHER = voter(1), voter(2), voter(3)
THREE = Configuration((ME, LEADER, OTHER))


def command(index: int, term: int, payload: bytes = b"x") -> Entry:
    return Entry(index, term, EntryType.COMMAND, payload)


def made(disk: MemoryDisk) -> RaftNode:
    return RaftNode(ME, disk, disk.hard_state, disk.configurations, times=TIMES, rng=random.Random(1))


def new_node(configuration: Configuration = THREE) -> tuple[RaftNode, MemoryDisk]:
    disk = MemoryDisk()
    disk.log = [Entry(1, 1, EntryType.CONFIGURATION, configuration.encode())]
    disk.hard_state = HardState(1, None, 1)
    return made(disk), disk


def do(node: RaftNode, disk: MemoryDisk) -> list[Message]:
    """Everything that is ready, and what is said."""
    said: list[Message] = []
    while (ready := node.ready()) is not None:
        said += ready.messages
        if ready.persist is not None:
            disk.save(ready.persist)
        said += node.advance(ready)
    return said


def alone() -> tuple[RaftNode, MemoryDisk]:
    """The leader of itself."""
    node, disk = new_node(Configuration((ME,)))
    node.campaign()
    do(node, disk)
    assert node.leads
    return node, disk


def append(term: int, previous: tuple[int, int], *entries: Entry, commit: int = 1) -> AppendRequest:
    source = LEADER if term % 2 == 0 else OTHER
    return AppendRequest(
        term,
        source,
        ME,
        previous_index=previous[0],
        previous_term=previous[1],
        entries=entries,
        commit=commit,
    )


def begun(node: RaftNode) -> Ready:
    ready = node.ready()
    assert ready is not None
    return ready


# --- persist before you speak


def test_nothing_is_promised_before_it_is_saved() -> None:
    node, disk = new_node()

    node.step(append(2, (1, 1), command(2, 2)))
    node.step(VoteRequest(3, OTHER, ME, last_index=9, last_term=2, transfer=True))
    ready = begun(node)

    assert ready.messages == ()
    assert ready.persist is not None
    assert (ready.persist.entries, ready.persist.hard_state) == ((command(2, 2),), HardState(3, OTHER, 1))
    disk.save(ready.persist)
    said = node.advance(ready)
    assert said == (VoteResponse(3, ME, OTHER, granted=True),)


def test_one_ready_is_outstanding_and_messages_are_taken_meanwhile() -> None:
    node, disk = new_node()
    node.step(append(2, (1, 1), command(2, 2)))
    ready = begun(node)

    node.step(append(2, (2, 2), command(3, 2)))

    assert node.ready() is None
    assert ready.persist is not None
    disk.save(ready.persist)
    assert [one.index for one in node.advance(ready) if isinstance(one, AppendResponse)] == [2]
    assert [one.index for one in do(node, disk) if isinstance(one, AppendResponse)] == [3]


def test_entries_that_were_replaced_before_they_were_saved_are_never_acknowledged() -> None:
    node, disk = new_node()

    node.step(append(2, (1, 1), command(2, 2), command(3, 2), command(4, 2)))
    node.step(append(3, (1, 1), command(2, 3)))

    said = [one for one in do(node, disk) if isinstance(one, AppendResponse)]
    assert [(one.term, one.index) for one in said] == [(3, 2)]


def test_entries_that_were_replaced_while_they_were_saved_do_not_count_as_saved() -> None:
    node, disk = new_node()
    node.step(append(2, (1, 1), command(2, 2), command(3, 2), command(4, 2)))
    ready = begun(node)
    node.step(append(3, (2, 2), command(3, 3), commit=3))

    assert ready.persist is not None
    disk.save(ready.persist)
    node.advance(ready)

    assert node.log.saved_index == 2, "what both have in common is saved"
    following = begun(node)
    assert [entry.index for entry in following.committed] == [2]
    assert following.persist is not None
    assert following.persist.entries == (command(3, 3),)


def test_a_restart_in_the_middle_of_a_save_promises_nothing_new() -> None:
    node, disk = new_node()
    node.step(append(2, (1, 1), command(2, 2), command(3, 2)))
    ready = begun(node)
    assert ready.persist is not None
    disk.save(ready.persist, steps=1)

    node = made(disk)

    assert (node.term, node.log.last_index, node.log.commit) == (1, 2, 1)


# --- who is believed


def test_what_is_meant_for_an_earlier_disk_is_not_taken() -> None:
    node, _ = new_node()

    node.step(HeartbeatRequest(9, LEADER, voter(1, disk=7), round=1))

    assert (node.term, node.leader) == (1, None)


def test_a_leader_of_an_earlier_term_is_told_the_term_of_now() -> None:
    node, disk = new_node()
    node.step(HeartbeatRequest(5, OTHER, ME, round=1))
    do(node, disk)

    node.step(append(4, (1, 1)))

    assert do(node, disk) == [AppendResponse(5, ME, LEADER, index=0, rejected=True)]


def test_a_voter_that_hears_its_leader_votes_for_nobody_else_until_it_is_refused() -> None:
    node, disk = new_node()
    node.step(HeartbeatRequest(2, LEADER, ME, round=1))
    do(node, disk)
    request = VoteRequest(3, OTHER, ME, last_index=9, last_term=2)

    node.step(request)
    assert do(node, disk) == [VoteResponse(2, ME, OTHER, granted=False)]
    node.refused(LEADER)
    node.step(request)

    assert do(node, disk) == [VoteResponse(3, ME, OTHER, granted=True)]


@pytest.mark.parametrize("seed", range(20))
def test_a_refused_voter_asks_within_its_time(seed: int) -> None:
    node, disk = new_node()
    node.state.rng = random.Random(seed)
    node.step(HeartbeatRequest(2, LEADER, ME, round=1))
    do(node, disk)

    node.refused(LEADER)
    for _ in range(TIMES.refused):
        # Each attempt to connect is refused, and none puts the campaign off.
        node.refused(LEADER)
        node.tick()

    asked = {one.target for one in do(node, disk) if isinstance(one, VoteRequest) and one.pre}
    assert asked == {LEADER, OTHER}


def test_a_promise_for_another_term_does_not_count() -> None:
    node, disk = new_node()
    node.campaign()
    do(node, disk)

    node.step(VoteResponse(9, OTHER, ME, granted=True, pre=True))

    assert (node.role_name, node.term) == ("candidate", 1)
    node.step(VoteResponse(2, OTHER, ME, granted=True, pre=True))
    assert node.term == 2


# --- images


def test_nothing_is_acknowledged_applied_or_campaigned_for_before_an_image_is_saved() -> None:
    node, disk = new_node()
    image = Snapshot(10, 2, THREE, b"image")

    node.step(SnapshotRequest(2, LEADER, ME, snapshot=image))
    node.step(append(2, (10, 2), command(11, 2), commit=11))
    node.campaign()
    ready = begun(node)

    assert (ready.committed, ready.messages, node.role_name) == ((), (), "follower")
    assert ready.persist is not None
    assert (ready.persist.snapshot, ready.persist.entries) == (image, (command(11, 2),))
    disk.save(ready.persist)
    assert [one.index for one in node.advance(ready) if isinstance(one, AppendResponse)] == [10, 11]
    assert [entry.index for entry in begun(node).committed] == [11]


def test_an_image_of_what_is_here_only_tells_that_it_is_committed() -> None:
    node, disk = new_node()
    node.step(append(2, (1, 1), command(2, 2), command(3, 2)))
    do(node, disk)

    node.step(SnapshotRequest(2, LEADER, ME, snapshot=Snapshot(2, 2, THREE, b"image")))

    assert (node.log.commit, node.log.last_index, node.log.unsaved_snapshot) == (2, 3, None)


# --- bounds


def test_one_that_does_not_lead_takes_nothing() -> None:
    node, _ = new_node()

    for ask in (lambda: node.propose([b"x"]), lambda: node.read(1), lambda: node.transfer(OTHER)):
        with pytest.raises(NotRaftLeader):
            ask()


def test_a_leader_takes_only_so_many_bytes_before_they_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncommitted, "UNCOMMITTED_BYTES_MAX", 1000)
    node, disk = alone()
    node.propose([bytes(5000)])

    with pytest.raises(Busy, match="wait for a majority"):
        node.propose([b"x"])
    do(node, disk)

    assert node.propose([b"x"]) == node.log.last_index


def test_a_command_that_no_entry_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "PAYLOAD_BYTES_MAX", 100)
    node, _ = alone()

    with pytest.raises(InvalidRequest, match="a command of 101 bytes"):
        node.propose([b"", bytes(101)])

    assert node.log.last_index == 2


def test_the_number_of_waiting_reads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READS_MAX", 2)
    node, disk = alone()
    node.read(1)
    node.read(2)

    with pytest.raises(Busy, match="reads of the metadata wait"):
        node.read(3)

    assert [(read.token, read.index) for read in begun(node).reads] == [(1, 2), (2, 2)]
    assert disk.last_index == 2


def test_reads_that_arrive_together_share_a_heartbeat_round() -> None:
    node, disk = new_node()
    node.campaign()
    do(node, disk)
    for pre in (True, False):
        node.step(VoteResponse(2, OTHER, ME, granted=True, pre=pre))
        do(node, disk)
    node.step(AppendResponse(2, OTHER, ME, index=2))
    do(node, disk)
    for token in range(10):
        node.read(token)

    beats = [one for one in begun(node).messages if isinstance(one, HeartbeatRequest)]

    assert len(beats) == 2, "one for each of the others"


def test_entries_in_memory_are_bounded_and_the_rest_is_read_from_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "KEPT_ENTRIES_MAX", 10)
    node, disk = alone()
    payloads = [b"%d" % number for number in range(50)]
    for payload in payloads:
        node.propose([payload])
        do(node, disk)

    assert len(node.log._kept) <= 20
    found: list[Entry] = []
    while found[-1:] != disk.log[-1:]:
        found += node.log.entries(3 + len(found), 53, 1 << 20)
    assert [entry.payload for entry in found] == payloads


def test_large_entries_are_let_go_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "KEPT_BYTES_MAX", 1000)
    node, disk = alone()
    for _ in range(20):
        node.propose([bytes(300)])
        do(node, disk)

    assert sum(len(entry.payload) for entry in node.log._kept) <= 2000
    assert node.log.term(15) == 2
