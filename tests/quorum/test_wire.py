"""What brokers say to each other arrives as it was said."""

from __future__ import annotations

import pytest

from tidelog.errors import DiskFull, StreamExists, TidelogError
from tidelog.model import Listener
from tidelog_broker.core.metadata.commands import ReplicaName, Suspect
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Member
from tidelog_broker.core.raft.messages import AppendRequest, HeartbeatRequest, SnapshotRequest
from tidelog_broker.errors import NotController
from tidelog_broker.membership.wire import (
    AllocateBlock,
    Ask,
    Block,
    Call,
    Called,
    ChangeIsr,
    ControlMessage,
    Done,
    Failed,
    Heartbeat,
    Known,
    LoseReplicas,
    NotControllerResponse,
    Register,
    Reply,
    Report,
    decode,
    encode,
    failed,
    raised,
)
from tidelog_broker.model import Configuration, Entry, EntryType, Snapshot, Voter
from tidelog_broker.peers.errors import ProtocolBroken

ONE, OTHER = Voter(1, b"1" * 16), Voter(2, b"2" * 16)
REGISTRATION = Registration(
    b"c" * 16, 1, b"i" * 16, b"d" * 16, (Listener("peer", "host", 9310),), "rack", 3,
    suspects=(Suspect(b"s" * 16, 0, 4, 17),), lost=(ReplicaName(b"s" * 16, 1),),
)  # fmt: skip
PROPOSAL = IsrProposal(Member(1, b"i" * 16), b"s" * 16, 0, 3, 4, (Member(1, b"i" * 16), Member(2, b"j" * 16)))
WORDS: list[ControlMessage] = [
    AppendRequest(3, ONE, OTHER, 7, 2, (Entry(8, 3, EntryType.COMMAND, b"payload"),), 6),
    HeartbeatRequest(3, ONE, OTHER, round=9, commit=7),
    SnapshotRequest(3, ONE, OTHER, snapshot=Snapshot(7, 2, Configuration((ONE,), (OTHER,)), b"image")),
    Ask(1, Register.of(REGISTRATION)),
    Ask(2, Heartbeat(1, b"i" * 16, True)),
    Ask(
        2,
        Heartbeat(
            1, b"i" * 16, damaged=(ReplicaName(b"s" * 16, 1),), clock_off=True, clock_yields=True, clock_us=7
        ),
    ),
    Ask(3, Report(1, b"i" * 16, 2, b"j" * 16, "refused")),
    Ask(4, ChangeIsr((PROPOSAL,))),
    Ask(5, LoseReplicas(1, b"i" * 16, (ReplicaName(b"s" * 16, 1),))),
    Ask(6, AllocateBlock(1, 1000)),
    Ask(7, Call("CreateStream", b"request")),
    Ask(8, Known(1, b"d" * 16)),
    Reply(1, Done(17)),
    Reply(1, Done(17, 1_700_000_000_000_000)),
    Reply(2, Block(1, 1000)),
    Reply(3, Called(b"response", 17)),
    Reply(4, NotControllerResponse(2, "host", 9310)),
    Reply(5, Failed("DISK_FULL", "full", 1000, {"name": "orders"})),
]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(getattr(word, "request", word)).__name__)
def test_every_message_arrives_as_it_was_sent(word: ControlMessage) -> None:
    assert decode(memoryview(encode(word))) == word


def test_a_registration_arrives_whole() -> None:
    said = decode(encode(Ask(1, Register.of(REGISTRATION))))

    assert isinstance(said, Ask)
    assert isinstance(said.request, Register)
    assert said.request.registration() == REGISTRATION


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81\xa4type\xa3new", encode(WORDS[0])[:-3]])
def test_what_cannot_be_understood_breaks_the_connection_and_nothing_else(data: bytes) -> None:
    with pytest.raises(ProtocolBroken, match="does not understand"):
        decode(data)


@pytest.mark.parametrize(
    "error",
    [StreamExists("there", name="orders"), DiskFull("full", retry_after_ms=7), NotController(2, ("host", 1))],
)
def test_an_error_arrives_with_its_type_and_its_facts(error: TidelogError) -> None:
    answer = failed(error)
    assert isinstance(answer, NotControllerResponse | Failed)

    found = raised(answer)

    assert type(found) is type(error)
    assert (found.message, found.details, found.retry_after_ms) == (
        error.message, error.details, error.retry_after_ms,
    )  # fmt: skip
