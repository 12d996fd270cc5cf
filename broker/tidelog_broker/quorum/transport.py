"""What a broker's part in the quorum knows of the other brokers, and they of it.

Who it is connected to, and whom it believes; what comes from them goes to Raft or is answered, and
what their connections prove goes to both. Neighbours: `membership.links` has the connections,
`quorum_controller` is this broker's part.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.registration import put_back
from tidelog_broker.core.raft.history import History, Relation, relation
from tidelog_broker.core.raft.messages import AppendRequest, Message, SnapshotRequest
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.controller_client import ControllerClient
from tidelog_broker.membership.links import Address, ControlLinks
from tidelog_broker.membership.session import Membership
from tidelog_broker.membership.wire import Answer, Request
from tidelog_broker.model import Recovery, Voter
from tidelog_broker.peers.errors import OtherHistory, PutBack
from tidelog_broker.peers.hello import ConnectionKind, Identity
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.quorum.driver import RaftDriver

log = structlog.get_logger(__name__)

PEER_LISTENER: Final = "peer"
"""The name of the listener in the image that other brokers connect to."""

STRANGERS_MAX: Final = 1000
"""Runs of brokers of other histories that are warned of."""

_WHY: Final = {
    Relation.EARLIER: "a recovery was forced elsewhere, and the former does not know it yet",
    Relation.LATER: "a recovery was forced, which the latter does not know",
    Relation.OTHER: (
        "two recoveries were forced, each on another voter. Decide which cluster goes on, and empty the data "
        "directories of the brokers that followed the other one"
    ),
}


class QuorumTransport:
    """See the module. The host of `ControlLinks`; of one event loop."""

    def __init__(
        self,
        me: Voter,
        cluster_id: bytes,
        incarnation: bytes,
        rng: random.Random,
        *,
        seeds: tuple[Address, ...],
        image: Callable[[], ClusterImage],
        raft: Callable[[], RaftDriver],
        answer: Callable[[Request], Awaitable[Answer]],
        starts: Callable[[], int],
        superseded: Callable[[tuple[Recovery, ...]], None],
        put_back: Callable[[str], None],
        clock: ClusterClock,
    ) -> None:
        """`answer`: what this broker says to a request, as the controller or not. It never raises.

        `superseded` is told the history of a broker that went on by force from what the log here shares
        with it (M2), again and again; `put_back` why another broker refuses this data directory for good
        (R19). `starts`: how many the directory has counted.
        """
        self._me = me
        self._cluster_id = cluster_id
        self._incarnation = incarnation
        self._image = image
        self._raft = raft
        self._answer = answer
        self._starts = starts
        self._superseded = superseded
        self.put_back = put_back
        """Another broker says so of this one's data directory."""
        self._adopted: History = None
        """Of the leader that first sent entries to this log, which was empty: it is of that history."""
        self._strangers: set[bytes] = set()
        """Runs of brokers of other histories that were warned of."""
        self.address: Address | None = None
        """Where this broker's peer listener is reached; None: nowhere."""
        self.links = ControlLinks(self.identity, self, rng)
        self.controller_client = ControllerClient(
            self.identity,
            self.links,
            seeds=seeds,
            leader=lambda: self.leader,
            answer_here=answer,
            hinted=self.link,
            other_history=self.meet,
        )
        self.membership = Membership(incarnation, self.controller_client.ask, image, clock)
        self.on_refused: Callable[[int], None] = lambda broker: None
        """Told at once of each broker whose machine refuses connections."""
        self._refused: dict[int, None] = {}
        self._linked: tuple[object, ...] = ()
        """What the links were last made from."""

    def __repr__(self) -> str:
        return f"<QuorumTransport {self.links!r} refused={list(self._refused)}>"

    @property
    def leader(self) -> int | None:
        """The broker that leads the quorum, as far as this one has heard."""
        leader = self._raft().node.leader
        return None if leader is None else leader.broker_id

    def identity(self) -> Identity:
        """This run of this broker, as others are told."""
        host, port = self.address or ("", 0)
        return Identity(
            self._me.broker_id,
            self._cluster_id,
            self._me.directory_id,
            self._incarnation,
            host,
            port,
            self.recoveries,
            self._starts(),
        )

    @property
    def recoveries(self) -> History:
        """The history of the metadata log here (M2)."""
        raft_log = self._raft().node.log
        if raft_log.last_index == 0:
            return self._adopted
        # Before the entry of the recovery has come, what is here is of the leader's history all the same.
        return max(raft_log.configuration.recoveries, self._adopted or (), key=len)

    def meet(self, theirs: History) -> Relation:
        """What this log's history is to that of a broker that was met."""
        mine = relation(self.recoveries, theirs)
        if mine is Relation.EARLIER and theirs is not None:
            self._superseded(theirs)
        return mine

    def check(self, identity: Identity) -> None:
        self._check_starts(identity)
        mine = self.meet(identity.recoveries)
        if mine is Relation.SAME:
            return
        reason = (
            f"the metadata log of broker {self._me.broker_id} and that of broker {identity.broker_id} are of "
            f"two histories: {_WHY[mine]}"
        )
        if identity.incarnation not in self._strangers and len(self._strangers) < STRANGERS_MAX:
            self._strangers.add(identity.incarnation)
            log.warning("a broker of another history is refused", broker=identity.broker_id, reason=reason)
        raise OtherHistory(reason, self.recoveries or ())

    def _check_starts(self, identity: Identity) -> None:
        """R19, before the other run has registered: its vote would come of a log that lacks entries."""
        known = self._image().brokers.get(identity.broker_id)
        if known is None or identity.starts is None or known.incarnation == identity.incarnation:
            # A run that registered after it had greeted is the one that is known.
            return
        reason = put_back(known, identity.directory_id, identity.starts + 1)
        if reason:
            raise PutBack(reason)

    def refuses(self, broker: int) -> bool:
        """The machine of a broker refuses connections: its process is gone."""
        return broker in self._refused

    def ticked(self) -> None:
        """Raft acts on refused connections while they last."""
        for broker in self._refused:
            self._raft().refused(broker)

    def link(self) -> None:
        """Keeps a connection to everybody that may have to be talked to."""
        configuration, brokers = self._raft().node.configuration, self._image().brokers
        # Whoever leads is answered, also by a broker that has no configuration and no image yet.
        heard = (self.leader, self.controller_client.hint)
        known = (configuration, brokers, *heard)
        if self._linked[2:] == heard and all(map(operator.is_, known[:2], self._linked)):
            return
        self._linked = known
        for broker in brokers.values():
            for listener in broker.listeners:
                if listener.name == PEER_LISTENER and broker.id != self._me.broker_id:
                    self.links.learn(broker.id, (listener.host, listener.port))
        members = {voter.broker_id: None for voter in (*configuration.voters, *configuration.learners)}
        wanted = {**dict.fromkeys(brokers), **members}
        wanted.update((broker, None) for broker in heard if broker is not None)
        wanted.pop(self._me.broker_id, None)
        self.links.want(sorted(wanted))

    def send(self, message: Message) -> None:
        self.links.send(message.target.broker_id, message)

    # --- of `membership.links.Host`

    def said(self, message: Message, peer: Identity) -> None:
        entries = isinstance(message, AppendRequest | SnapshotRequest)
        if entries and self._adopted is None and self._raft().node.log.last_index == 0:
            self._adopted = peer.recoveries
        self._raft().step(message)

    async def answer(self, request: Request) -> Answer:
        return await self._answer(request)

    def believes(self, identity: Identity) -> bool:
        known = self._image().brokers.get(identity.broker_id)
        return known is None or known.fenced or known.directory_id == identity.directory_id

    def opened(self, broker: int) -> None:
        self._refused.pop(broker, None)
        self._raft().disconnected(broker)

    def closed(self, broker: int) -> None:
        self._raft().disconnected(broker)

    def accused(self, broker: int, run: bytes, evidence: Evidence | None) -> None:
        if evidence is Evidence.REFUSED:
            self._refused[broker] = None
            self._raft().refused(broker)
            self.on_refused(broker)
        else:
            self._refused.pop(broker, None)
        self.membership.accuse(broker, ConnectionKind.CONTROL, run, evidence)
