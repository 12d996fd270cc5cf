"""A vote or a request counts for the broker whose connection it came on."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from structlog.testing import capture_logs

from quorum.conftest import CLUSTER, Cluster, identifier
from support.hosts import HOST
from support.waiting import until
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Member
from tidelog_broker.core.raft.messages import VoteRequest
from tidelog_broker.membership import wire
from tidelog_broker.membership.control_connections import HEADER
from tidelog_broker.membership.wire import Ask, Request, encode
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


ME = Identity(7, CLUSTER, identifier(7), identifier(70), HOST, 1)
OTHER, OTHER_RUN = 2, identifier(20)


def change_of_isr(broker: int, run: bytes) -> wire.ChangeIsr:
    leader = Member(broker, run)
    return wire.ChangeIsr((IsrProposal(leader, identifier(1), 0, 1, 1, (leader,)),))


IN_THE_NAME_OF: dict[type, Callable[[int, bytes], Request]] = {
    wire.Register: lambda broker, run: wire.Register(CLUSTER, broker, run, ME.directory_id),
    wire.Heartbeat: wire.Heartbeat,
    wire.Report: lambda broker, run: wire.Report(broker, run, 1, identifier(10), "refused"),
    wire.ChangeIsr: change_of_isr,
    wire.LoseReplicas: lambda broker, run: wire.LoseReplicas(broker, run, ()),
    wire.Settled: lambda broker, run: wire.Settled(broker, run, ()),
    wire.AllocateBlock: lambda broker, run: wire.AllocateBlock(broker, 1),
    wire.Known: lambda broker, run: wire.Known(broker, ME.directory_id),
}
WITHOUT_A_RUN = {wire.AllocateBlock, wire.Known}
WITHOUT_A_SENDER = {wire.Confirm, wire.Call}


def test_each_request_that_names_its_sender_is_tried() -> None:
    assert IN_THE_NAME_OF.keys() | WITHOUT_A_SENDER == set(get_args(Request))


async def test_a_request_in_the_name_of_another_broker_ends_its_connection(cluster: Cluster) -> None:
    await cluster.quorum()
    with capture_logs() as logged:
        for kind, make in IN_THE_NAME_OF.items():
            await until_the_connection_ends(cluster, make(OTHER, ME.incarnation))
            if kind not in WITHOUT_A_RUN:
                await until_the_connection_ends(cluster, make(ME.broker_id, OTHER_RUN))

    [told] = [line for line in logged if "claimed" in line]
    assert told["event"] == "a broker sent a message that is not in its own name; its connection ends"
    assert (told["broker"], told["claimed"]) == (7, f"broker 2 in its run {ME.incarnation.hex()[:8]}")
    assert told["address"].startswith("127.0.0.1:")


async def test_a_request_of_several_brokers_ends_its_connection(cluster: Cluster) -> None:
    await cluster.quorum()
    mine, foreign = (change_of_isr(broker, ME.incarnation) for broker in (ME.broker_id, OTHER))

    await until_the_connection_ends(cluster, wire.ChangeIsr((*mine.proposals, *foreign.proposals)))


async def test_a_request_in_its_own_name_is_answered(cluster: Cluster) -> None:
    await cluster.quorum()
    for make in IN_THE_NAME_OF.values():
        connection, heard = await ask(cluster, make(ME.broker_id, ME.incarnation))
        await until_answered(heard)
        connection.abort("the test goes on")


async def until_answered(heard: Listening) -> None:
    await until(lambda: heard.answers == 1, "the request is answered")
    assert heard.reasons == []


async def until_the_connection_ends(cluster: Cluster, request: Request) -> None:
    _, heard = await ask(cluster, request)
    await until(lambda: bool(heard.reasons), f"the connection with {request} ends")
    assert heard.answers == 0, request


async def ask(cluster: Cluster, request: Request) -> tuple[PeerConnection, Listening]:
    """Sends it on a new connection of broker 7."""
    port = cluster.brokers[1].port
    connection = await dial(HOST, port, lambda: ME, ConnectionKind.CONTROL, target=1, timeout_s=5)
    heard = Listening()
    connection.serve(heard)
    connection.send(HEADER, encode(Ask(1, request)))
    return connection, heard
