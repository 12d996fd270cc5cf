"""A vote counts for the broker whose connection it came on."""

from __future__ import annotations

from quorum.conftest import CLUSTER, Cluster, identifier
from support.hosts import HOST
from support.waiting import until
from tidelog_broker.core.raft.messages import VoteRequest
from tidelog_broker.membership.control_connections import HEADER
from tidelog_broker.membership.wire import encode
from tidelog_broker.model import Voter
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.hello import ConnectionKind, Identity


class Listening:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None: ...

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
