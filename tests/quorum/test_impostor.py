"""A vote or a request counts for the broker whose connection it came on."""

from __future__ import annotations

from typing import get_args

from quorum.conftest import CLUSTER, Cluster, identifier
from support.hosts import HOST
from support.waiting import until
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Member
from tidelog_broker.core.raft.messages import VoteRequest
from tidelog_broker.membership.control_connections import HEADER
from tidelog_broker.membership.wire import (
    AllocateBlock,
    Ask,
    Call,
    ChangeIsr,
    Confirm,
    Heartbeat,
    Known,
    LoseReplicas,
    Register,
    Report,
    Request,
    Settled,
    encode,
)
from tidelog_broker.model import Voter
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.hello import ConnectionKind, Identity


class Listening:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.answers = 0

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        self.answers += 1

    def writable(self, connection: PeerConnection) -> None: ...

    def opened(self, connection: PeerConnection) -> None: ...

    def closed(self, connection: PeerConnection, reason: str) -> None:
        self.reasons.append(reason)


async def test_a_raft_message_in_the_name_of_another_broker_ends_its_connection(
    cluster: Cluster,
) -> None:
    await cluster.quorum()
    asked, claimed = cluster.brokers[1], cluster.brokers[2]
    me = Identity(7, CLUSTER, identifier(7), identifier(70), HOST, 1)
    connection = await dial(HOST, asked.port, lambda: me, ConnectionKind.CONTROL, target=1, timeout_s=5)
    heard = Listening()
    connection.serve(heard)
    before = asked.controller._driver.node.term

    vote = VoteRequest(
        source=Voter(claimed.id, claimed.directory_id),
        target=Voter(asked.id, asked.directory_id),
        term=before + 100,
        transfer=True,
        last_term=before,
        last_index=1 << 40,
    )
    connection.send(HEADER, encode(vote))
    await until(lambda: bool(heard.reasons), "the connection ends")

    assert asked.controller._driver.node.term == before


ME, OTHER = Identity(7, CLUSTER, identifier(7), identifier(70), HOST, 1), identifier(2)
LEADER = Member(2, OTHER)
IN_ANOTHER_NAME: list[Request] = [
    Register(CLUSTER, 2, ME.incarnation, OTHER),
    Register(CLUSTER, 7, OTHER, ME.directory_id),
    Heartbeat(2, ME.incarnation),
    Heartbeat(7, OTHER),
    Report(2, ME.incarnation, 1, OTHER, "refused"),
    Report(7, OTHER, 1, OTHER, "refused"),
    ChangeIsr((IsrProposal(LEADER, OTHER, 0, 1, 1, (LEADER,)),)),
    LoseReplicas(2, ME.incarnation, ()),
    LoseReplicas(7, OTHER, ()),
    Settled(2, ME.incarnation, ()),
    Settled(7, OTHER, ()),
    AllocateBlock(2, 1),
    Known(2, OTHER),
]
WITHOUT_A_NAME = {Confirm, Call}


def test_each_request_that_names_its_sender_is_tried() -> None:
    assert {type(one) for one in IN_ANOTHER_NAME} | WITHOUT_A_NAME == set(get_args(Request))


async def test_a_request_in_the_name_of_another_broker_ends_its_connection(cluster: Cluster) -> None:
    await cluster.quorum()
    for request in IN_ANOTHER_NAME:
        assert await answers_before_its_end(cluster, request) == 0, request


async def test_a_request_in_its_own_name_is_answered(cluster: Cluster) -> None:
    await cluster.quorum()

    connection, heard = await ask(cluster, Heartbeat(7, ME.incarnation))
    await until(lambda: heard.answers == 1, "the request is answered")

    connection.abort("the test ends")


async def answers_before_its_end(cluster: Cluster, request: Request) -> int:
    _, heard = await ask(cluster, request)
    await until(lambda: bool(heard.reasons), f"the connection with {request} ends")
    return heard.answers


async def ask(cluster: Cluster, request: Request) -> tuple[PeerConnection, Listening]:
    """Sends it on a new connection of broker 7."""
    port = cluster.brokers[1].port
    connection = await dial(HOST, port, lambda: ME, ConnectionKind.CONTROL, target=1, timeout_s=5)
    heard = Listening()
    connection.serve(heard)
    connection.send(HEADER, encode(Ask(1, request)))
    return connection, heard
