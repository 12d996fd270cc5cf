"""Connects this broker's part of the quorum to the other brokers.

It says which brokers this one keeps connections to and which it accepts. It passes Raft messages to the
driver and requests to the request handler, and passes on what connections prove against other brokers.
Neighbours: `membership.control_connections` has the connections, `quorum_controller` builds this part.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec.structs
import structlog

from tidelog_broker.core.metadata.controller.registration import put_back
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.raft.history import History, Relation, relation
from tidelog_broker.core.raft.messages import AppendRequest, Message, SnapshotRequest
from tidelog_broker.membership.addresses import Address, AddressBook
from tidelog_broker.membership.control_connections import ControlConnections
from tidelog_broker.membership.controller_client import ControllerClient
from tidelog_broker.membership.failure_reporter import FailureReporter
from tidelog_broker.membership.wire import Answer, Request
from tidelog_broker.peers.connection import Accept
from tidelog_broker.peers.errors import DirectoryRestored, OtherHistory
from tidelog_broker.peers.hello import ConnectionKind, Identity
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.quorum.driver import RaftDriver
from tidelog_broker.quorum.run_end import RunEnd
from tidelog_broker.tls.credentials import Credentials

log = structlog.get_logger(__name__)

PEER_LISTENER: Final = "peer"
"""The name of the listener in the image that other brokers connect to."""

STRANGERS_MAX: Final = 1000
"""At most so many runs of brokers of other histories are warned of."""

_WHY: Final = {
    Relation.EARLIER: "a recovery was forced that broker {mine} does not know yet",
    Relation.LATER: "a recovery was forced that broker {theirs} does not know yet",
    Relation.OTHER: (
        "two recoveries were forced, each on another voter. Decide which cluster goes on, and empty the data "
        "directories of the brokers that followed the other one"
    ),
}


class QuorumTransport:
    """The `ControlReceiver` of the control connections. Belongs to one event loop."""

    def __init__(
        self,
        identity: Identity,
        rng: random.Random,
        *,
        seeds: tuple[Address, ...],
        addresses: AddressBook,
        image: Callable[[], ClusterImage],
        raft: Callable[[], RaftDriver],
        answer: Callable[[Request], Awaitable[Answer]],
        starts: Callable[[], int],
        run_end: RunEnd,
        peer_refused: Callable[[int], None],
        tls: Credentials | None,
    ) -> None:
        """`identity`: this run, without the facts that may change while it lasts.

        `answer` answers a request, as the controller or not, and never raises. `starts`: how many starts the
        data directory has counted. `run_end` is told when this run must end because another broker went on
        by force (M2), or knows of a later start of this data directory (R19). `peer_refused` is told at once
        of each broker whose machine refuses connections.
        """
        self._identity = identity
        self._me = identity.broker_id
        self._image = image
        self._raft = raft
        self._answer = answer
        self._starts = starts
        self._run_end = run_end
        self._peer_refused = peer_refused
        self.tls = tls
        """For connections to other brokers; None: they are not encrypted."""
        self._adopted: History = None
        """The history of the leader that first sent entries to this log, which was empty."""
        self._strangers: set[bytes] = set()
        """Runs of brokers of other histories that were warned of."""
        self._address: Address | None = None
        """Where other brokers reach this broker's peer listener; None: nowhere."""
        self.connections = ControlConnections(self.identity, self, addresses, rng, tls=tls)
        self.controller_client = ControllerClient(
            self.identity,
            self.connections,
            seeds=seeds,
            leader=self._leader,
            answer_here=answer,
            candidate_found=self.connect,
            other_history=self.compare_history,
        )
        self.failure_reporter = FailureReporter(
            self._me, identity.incarnation, self.controller_client.ask, image
        )
        self._refused: dict[int, None] = {}
        self._connected_for: tuple[object, ...] = ()
        """The facts from which the wanted connections were last derived."""

    def __repr__(self) -> str:
        return f"<QuorumTransport {self.connections!r} refused={list(self._refused)}>"

    async def listen(
        self,
        host: str,
        port: int,
        acceptors: Mapping[ConnectionKind, Accept],
        advertised: tuple[str, int | None],
    ) -> Address:
        """Accepts connections of other brokers; returns the address that they are told. Raises OSError.

        `advertised`: host and port of that address; without a port, the port that was bound.
        """
        bound = await self.connections.listen(host, port, acceptors)
        shown_host, shown_port = advertised
        self._address = (shown_host, shown_port or bound)
        return self._address

    def _leader(self) -> int | None:
        leader = self._raft().node.leader
        return None if leader is None else leader.broker_id

    def identity(self) -> Identity:
        """This run of this broker, as other brokers are told."""
        host, port = self._address or ("", 0)
        return msgspec.structs.replace(
            self._identity, host=host, port=port, recoveries=self.recoveries, starts=self._starts()
        )

    @property
    def recoveries(self) -> History:
        """The history of the metadata log here (M2)."""
        raft_log = self._raft().node.log
        if raft_log.last_index == 0:
            return self._adopted
        # Before the entry of the recovery arrives, this log is of the leader's history already.
        return max(raft_log.configuration.recoveries, self._adopted or (), key=len)

    def compare_history(self, theirs: History) -> Relation:
        """How this log's history relates to that of another broker. An earlier one ends this run (M2)."""
        mine = relation(self.recoveries, theirs)
        if mine is Relation.EARLIER and theirs is not None:
            self._run_end.superseded(theirs)
        return mine

    def check(self, identity: Identity) -> None:
        self._check_starts(identity)
        mine = self.compare_history(identity.recoveries)
        if mine is Relation.SAME:
            return
        why = _WHY[mine].format(mine=self._me, theirs=identity.broker_id)
        reason = (
            f"the metadata logs of broker {self._me} and broker {identity.broker_id} have different "
            f"histories: {why}"
        )
        if identity.incarnation not in self._strangers and len(self._strangers) < STRANGERS_MAX:
            self._strangers.add(identity.incarnation)
            log.warning(
                "a message of a broker with another metadata history was refused",
                broker=identity.broker_id,
                reason=reason,
            )
        raise OtherHistory(reason, self.recoveries or ())

    def _check_starts(self, identity: Identity) -> None:
        """R19, before the other run registers: its vote would come from a log that lacks entries."""
        known = self._image().brokers.get(identity.broker_id)
        if known is None or identity.starts is None or known.incarnation == identity.incarnation:
            # The known run may be this one: it registered after its greeting.
            return
        reason = put_back(known, identity.directory_id, identity.starts + 1)
        if reason:
            raise DirectoryRestored(reason)

    def refuses(self, broker: int) -> bool:
        """The machine of a broker refuses connections: its process ended."""
        return broker in self._refused

    def ticked(self) -> None:
        """Raft acts on refused connections, as long as they are refused."""
        for broker in self._refused:
            self._raft().refused(broker)

    def connect(self) -> None:
        """Keeps a connection to every broker that this one may have to talk to."""
        configuration, brokers = self._raft().node.configuration, self._image().brokers
        # The leader is answered even by a broker that has no configuration and no image yet.
        heard = (self._leader(), self.controller_client.hint)
        known = (configuration, brokers, *heard)
        if self._connected_for[2:] == heard and all(map(operator.is_, known[:2], self._connected_for)):
            return
        self._connected_for = known
        for broker in brokers.values():
            for listener in broker.listeners:
                if listener.name == PEER_LISTENER and broker.id != self._me:
                    self.connections.learn(broker.id, (listener.host, listener.port))
        members = {voter.broker_id: None for voter in (*configuration.voters, *configuration.learners)}
        wanted = {**dict.fromkeys(brokers), **members}
        wanted.update((broker, None) for broker in heard if broker is not None)
        wanted.pop(self._me, None)
        self.connections.want(sorted(wanted))

    def send(self, message: Message) -> None:
        self.connections.send(message.target.broker_id, message)

    # --- of `membership.control_connections.ControlReceiver`

    def received(self, message: Message, peer: Identity) -> None:
        entries = isinstance(message, AppendRequest | SnapshotRequest)
        if entries and self._adopted is None and self._raft().node.log.last_index == 0:
            self._adopted = peer.recoveries
        self._raft().step(message)

    async def answer(self, request: Request) -> Answer:
        return await self._answer(request)

    def recognizes(self, identity: Identity) -> bool:
        known = self._image().brokers.get(identity.broker_id)
        return known is None or known.fenced or known.directory_id == identity.directory_id

    def opened(self, broker: int) -> None:
        self._refused.pop(broker, None)
        self._raft().disconnected(broker)

    def closed(self, broker: int) -> None:
        self._raft().disconnected(broker)

    def evidence_changed(self, broker: int, run: bytes, evidence: Evidence | None) -> None:
        if evidence is Evidence.REFUSED:
            self._refused[broker] = None
            self._raft().refused(broker)
            self._peer_refused(broker)
        else:
            self._refused.pop(broker, None)
        self.failure_reporter.update(broker, ConnectionKind.CONTROL, run, evidence)

    def directory_restored(self, reason: str) -> None:
        self._run_end.directory_restored(reason)
