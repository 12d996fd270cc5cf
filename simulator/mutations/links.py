"""Bugs in messages over connections: answers for an earlier role, and the handover of leaderships (R2,
N5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker.core.replication.messages import RangeHeld, RangeWanted
from tidelog_broker.hosting import handover as handing_over
from tidelog_broker.hosting.handover import HandingOver
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.replication.feed import ReplicaFeed
from tidelog_broker.replication.uplink import Uplink
from tidelog_broker.replication.wire import from_leader


@mutation("R2", "returns")
def an_answer_for_an_earlier_role_is_taken() -> Iterator[None]:
    def to_anybody(self: Uplink, connection: Any, header: bytes, payload: Any) -> None:
        address, message = from_leader(header, payload)
        replica = self.replicas.get((address.stream_id, address.partition))
        if replica is None:
            return
        if isinstance(message, RangeWanted | RangeHeld):
            self._ranges(replica, self._leader, message)
        else:
            replica.received(message)

    with patched((Uplink, "received", to_anybody)):
        yield


@mutation("R1")
def a_link_sends_what_it_has_sent_already() -> Iterator[None]:
    def twice(self: PeerConnection, header: bytes, *payload: Any) -> None:
        send(self, header, *payload)
        if self.kind in (ConnectionKind.REPLICA, ConnectionKind.CATCH_UP):
            send(self, header, *payload)

    send = PeerConnection.send
    with patched((PeerConnection, "send", twice)):
        yield


@mutation("R2", "late reads")
def a_turn_of_an_earlier_leadership_is_sent() -> Iterator[None]:
    with patched((ReplicaFeed, "_stands", lambda self, turn: True)):
        yield


@mutation("N5", "moves")
def a_leadership_counts_as_settled_before_it_is() -> Iterator[None]:
    with patched((handing_over._Leaving, "has_settled", lambda self: True)):
        yield


@uncaught("N5", "moves")
def appends_are_taken_while_a_leadership_is_handed_over() -> Iterator[None]:
    """The handover ends before the controller is told of it."""

    async def hasty(self: HandingOver, settled: Any) -> None:
        for one in settled:
            one.partition.leaving = False
        await release(self, settled)

    release = HandingOver._release
    with patched((HandingOver, "_release", hasty)):
        yield


@mutation("I7")
def a_reader_is_given_what_is_not_committed() -> Iterator[None]:
    from tidelog_broker.api.fetch_reading import Reading

    with patched((Reading, "limit", lambda self: self.partition.log.end_offset)):
        yield
