"""A follower's end of one connection to a leader's broker, for all partitions that are followed there.

`peers.link.PeerLink` keeps it open, and reports the evidence from connections that cannot be opened (R14).
Neighbours: `links` has the uplinks, `replica` the followers, `feed` is the other end.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tidelog_broker.core.replication.messages import FromFollower, RangeHeld, RangeWanted
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.errors import ProtocolBroken
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.peers.link import PeerLink
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.replication.peers import Peers
from tidelog_broker.replication.replica import Key, Replica
from tidelog_broker.replication.wire import Address, encode, from_leader


class Uplink:
    """A connection to one leader's broker, with all replicas that follow there.

    Owns a `peers.link.PeerLink`.
    """

    def __init__(
        self,
        leader: int,
        lane: ConnectionKind,
        peers: Peers,
        rng: random.Random,
        ranges: Callable[[Replica, int, RangeWanted | RangeHeld], None],
    ) -> None:
        """`ranges` is called with the leader's messages about damaged ranges."""
        self._ranges = ranges
        self._leader = leader
        self._lane = lane
        self._peers = peers
        self.replicas: dict[Key, Replica] = {}
        """The replicas that follow over this connection."""
        self.connection: PeerConnection | None = None
        """None: the connection is not open."""
        self._run = b""
        """The incarnation of the leader's broker that was last connected."""
        self._link = PeerLink(leader, lane, peers.identity, self, rng, tls=peers.tls)
        self._link.start()

    def __repr__(self) -> str:
        return f"<Uplink {self._link!r} replicas={len(self.replicas)}>"

    async def stop(self, reason: str) -> None:
        # A closed link cannot update its evidence, so the evidence is withdrawn.
        self.evidence(None)
        await self._link.stop(reason)

    # --- the replicas

    def add(self, replica: Replica) -> None:
        self.replicas[replica.key] = replica
        if self.connection is not None:
            replica.leader_connected()
        else:
            self._link.hurry()

    def remove(self, replica: Replica) -> None:
        self.replicas.pop(replica.key, None)

    def say(self, replica: Replica, message: FromFollower) -> None:
        if self.connection is not None:
            level = self._peers.feature_level()
            self.connection.send(
                encode(Address(*replica.key, replica.role_number), message, feature_level=level)
            )

    def send_range(self, replica: Replica, message: RangeWanted | RangeHeld) -> bool:
        """Sends batches for a damaged range, or a request for them; returns whether it was sent."""
        connection = self.connection
        if connection is None or not connection.writable:
            return False
        payload = (message.data,) if isinstance(message, RangeHeld) else ()
        connection.send(encode(Address(*replica.key, replica.role_number), message), *payload)
        return True

    # --- the connection

    def address(self) -> tuple[str, int] | None:
        return self._peers.address(self._leader)

    def directory_restored(self, reason: str) -> None:
        """Does nothing: the control connection gets the same report."""

    def evidence(self, evidence: Evidence | None) -> None:
        # The catch-up lane may be busy without a failure.
        if self._lane is ConnectionKind.REPLICA:
            self._peers.evidence(self._leader, self._run, evidence)

    def opened(self, connection: PeerConnection) -> None:
        self.connection, self._run = connection, connection.peer.incarnation
        for replica in list(self.replicas.values()):
            replica.leader_connected()

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        try:
            address, message = from_leader(header, payload)
        except ProtocolBroken as error:
            connection.abort(str(error))
            return
        replica = self.replicas.get((address.stream_id, address.partition))
        if replica is None or replica.role_number != address.number:
            return
        if isinstance(message, RangeWanted | RangeHeld):
            self._ranges(replica, self._leader, message)
        else:
            replica.received(message)

    def writable(self, connection: PeerConnection) -> None:
        """Does nothing: positions are few and small, and are sent even on a full connection."""

    def closed(self, connection: PeerConnection, reason: str) -> None:
        self.connection = None
        for replica in list(self.replicas.values()):
            replica.leader_gone()
