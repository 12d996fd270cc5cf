"""A broker's connections for replication: to each broker that it follows, from each that follows it.

The main connection of a pair of brokers carries their partitions. A second, catch-up connection carries
the partitions that are far behind. Its bandwidth is limited, so that it never delays the main connection.
Of several connections from one broker the newest counts; messages over an older one are ignored.

Neighbours: `feed` is a leader's end, `uplink` a follower's end; `replica` handles the messages.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Final

from tidelog_broker.core.replication.effects import SendBatches
from tidelog_broker.core.replication.messages import (
    FromFollower,
    FromLeader,
    Position,
    RangeHeld,
    RangeWanted,
    Refusal,
    Refused,
)
from tidelog_broker.peers.connection import PeerConnection, Receiver
from tidelog_broker.peers.errors import WrongPeer
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity
from tidelog_broker.replication.feed import Pace, ReplicaFeed
from tidelog_broker.replication.peers import Peers
from tidelog_broker.replication.replica import Key, Replica
from tidelog_broker.replication.uplink import Uplink

CATCH_UP_BYTES_MIN: Final = 32 << 20
"""A follower that is further behind than this gets its batches over the catch-up connection."""

CATCH_UP_BYTES_DONE: Final = 4 << 20
"""A follower returns to the main connection once it is at most this far behind."""

CATCH_UP_BYTES_PER_SECOND: Final = 64 << 20
"""Average bandwidth of the catch-up connection."""


OnRange = Callable[[Replica, int, RangeWanted | RangeHeld], None]
"""Called with the replica here, the broker of the other replica, and its message."""


class ReplicaLinks:
    """All connections for replication of one broker. Runs on one event loop."""

    def __init__(
        self,
        peers: Peers,
        replicas: Mapping[Key, Replica],
        unknown: Callable[[Key], int],
        threads: Executor,
        rng: random.Random,
        on_range: OnRange,
        *,
        catch_up_bytes_per_second: int = CATCH_UP_BYTES_PER_SECOND,
        catch_up_bytes_min: int = CATCH_UP_BYTES_MIN,
    ) -> None:
        """`replicas`: the replicas of this broker, shared with it. `unknown` returns the leader epoch in the
        image of a partition that has no replica here. `threads` read batches that are not in memory.
        `on_range` is called with other replicas' messages about damaged ranges."""
        self._loop = asyncio.get_running_loop()
        self._peers = peers
        self._replicas = replicas
        self._unknown = unknown
        self._threads = threads
        self._rng = rng
        self._catch_up_rate = catch_up_bytes_per_second
        self._throttle = 0
        self._catch_up_min = catch_up_bytes_min
        self._catch_up_done = min(CATCH_UP_BYTES_DONE, catch_up_bytes_min // 2)
        self.uplinks: dict[tuple[int, ConnectionKind], Uplink] = {}
        """By the leader's broker and the lane."""
        self._lanes: dict[Key, ConnectionKind] = {}
        """The lanes of replicas that do not ask on the main connection."""
        self.feeds: dict[tuple[int, ConnectionKind], ReplicaFeed] = {}
        """The newest feed, by the follower's broker and the lane."""
        self._asked_on: dict[tuple[int, Key], ConnectionKind] = {}
        """The lane on which a follower asked last, by the follower's broker and the partition."""
        self._on_range = on_range
        self._ending: dict[asyncio.Task[None], None] = {}
        self._stopped = False

    def __repr__(self) -> str:
        return f"<ReplicaLinks up={list(self.uplinks.values())} down={list(self.feeds.values())}>"

    async def stop(self, reason: str) -> None:
        """Ends all connections; `accept` refuses new ones."""
        self._stopped = True
        ups, self.uplinks = list(self.uplinks.values()), {}
        downs = [feed.connection for feed in self.feeds.values() if feed.connection is not None]
        await asyncio.gather(*(up.stop(reason) for up in ups), *(one.end(reason) for one in downs))
        if self._ending:
            await asyncio.wait(self._ending)

    def throttle(self, bytes_per_second: int) -> None:
        """Sets the bandwidth of the catch-up connections from now on; 0: this broker's own setting."""
        if bytes_per_second == self._throttle:
            return
        feeds = list(self.feeds.values())
        for feed in feeds:
            feed.settle_pace()
        self._throttle = bytes_per_second
        for feed in feeds:
            feed.go_on()

    def feature_level(self) -> int:
        """The feature level that all brokers of the cluster understand."""
        return self._peers.feature_level()

    def _pace(self) -> int:
        return self._throttle or self._catch_up_rate

    # --- following

    def follow(self, replica: Replica, leader: int) -> None:
        if self._stopped:
            return
        lane = self._lanes.get(replica.key, ConnectionKind.REPLICA)
        up = self.uplinks.get((leader, lane))
        if up is None:
            up = self.uplinks[leader, lane] = Uplink(leader, lane, self._peers, self._rng, self._on_range)
        up.add(replica)

    def unfollow(self, replica: Replica, leader: int) -> None:
        self._leave(replica, leader, self._lanes.pop(replica.key, ConnectionKind.REPLICA))

    def _leave(self, replica: Replica, leader: int, lane: ConnectionKind) -> None:
        up = self.uplinks.get((leader, lane))
        if up is None:
            return
        up.remove(replica)
        if not up.replicas:
            del self.uplinks[leader, lane]
            ending = self._loop.create_task(up.stop("no partition is followed over it"))
            self._ending[ending] = None
            ending.add_done_callback(self._ending.pop)

    def switch_connection(self, replica: Replica, leader: int) -> None:
        lane = self._lanes.pop(replica.key, ConnectionKind.REPLICA)
        if lane is ConnectionKind.REPLICA:
            self._lanes[replica.key] = ConnectionKind.CATCH_UP
        replica.leader_gone()
        self.follow(replica, leader)
        self._leave(replica, leader, lane)

    def say(self, replica: Replica, leader: int, message: FromFollower) -> None:
        up = self.uplinks.get((leader, self._lanes.get(replica.key, ConnectionKind.REPLICA)))
        if up is not None:
            up.say(replica, message)

    # --- leading

    def accept(self, hello: Hello) -> Receiver:
        """Returns the receiver of a new connection that begins with `hello`; raises `WrongPeer`."""
        if self._stopped:
            raise WrongPeer(f"broker {self._peers.identity().broker_id} is stopping")
        if hello.kind is ConnectionKind.CATCH_UP:
            return ReplicaFeed(self, self._threads, Pace(self._pace, self._loop.time()))
        return ReplicaFeed(self, self._threads)

    def feed_opened(self, feed: ReplicaFeed, connection: PeerConnection) -> None:
        lane, peer = connection.kind, connection.peer
        old = self.feeds.get((peer.broker_id, lane))
        self.feeds[peer.broker_id, lane] = feed
        if old is not None and old.connection is not None:
            if lane is ConnectionKind.REPLICA:
                self._tell_gone(peer.broker_id, refused=False)
            old.connection.abort("its broker has opened another connection")
        if lane is ConnectionKind.REPLICA:
            for replica in list(self._replicas.values()):
                replica.follower_connected(peer.broker_id, peer.incarnation)

    def feed_closed(self, feed: ReplicaFeed, connection: PeerConnection) -> None:
        key = (connection.peer.broker_id, connection.kind)
        if self.feeds.get(key) is not feed:
            return
        del self.feeds[key]
        if connection.kind is ConnectionKind.REPLICA:
            broker = connection.peer.broker_id
            self._tell_gone(broker, refused=self._peers.refuses(broker))

    def refused(self, broker: int) -> None:
        """The machine of a follower's broker refuses connections: its process is gone (R4)."""
        if (broker, ConnectionKind.REPLICA) not in self.feeds:
            self._tell_gone(broker, refused=True)

    def _tell_gone(self, broker: int, *, refused: bool) -> None:
        for replica in list(self._replicas.values()):
            replica.follower_gone(broker, refused=refused)

    def leads(self, replica: Replica) -> None:
        """A replica begins to lead: reports the open connections to it."""
        for feed, peer in list(self._connected()):
            feed.forget(replica.key)
            replica.follower_connected(peer.broker_id, peer.incarnation)

    def _connected(self) -> Iterator[tuple[ReplicaFeed, Identity]]:
        for (_, lane), feed in self.feeds.items():
            if lane is ConnectionKind.REPLICA and feed.connection is not None:
                yield feed, feed.connection.peer

    def asked(self, feed: ReplicaFeed, key: Key, peer: Identity, message: FromFollower) -> None:
        """A follower sent its position or its durable offset."""
        connection = feed.connection
        if connection is None or self.feeds.get((peer.broker_id, connection.kind)) is not feed:
            return
        replica = self._replicas.get(key)
        if not isinstance(message, Position):
            if replica is not None:
                replica.asked(peer.broker_id, peer.incarnation, message)
            return
        self._asked_on[peer.broker_id, key] = connection.kind
        if replica is None:
            feed.answer(key, Refused(Refusal.NOT_LEADER, self._unknown(key)))
        elif self._is_on_wrong_lane(replica, connection.kind, message):
            feed.answer(key, Refused(Refusal.OTHER_LANE, replica.leader_epoch))
        else:
            replica.asked(peer.broker_id, peer.incarnation, message)

    def range_came(self, feed: ReplicaFeed, key: Key, broker: int, message: RangeWanted | RangeHeld) -> None:
        """A follower sent a message about a damaged range."""
        connection, replica = feed.connection, self._replicas.get(key)
        if connection is None or self.feeds.get((broker, connection.kind)) is not feed or replica is None:
            return
        self._on_range(replica, broker, message)

    def send_range(self, replica: Replica, broker: int, message: RangeWanted | RangeHeld) -> bool:
        """Sends a message to the replica on `broker`; returns whether it was sent."""
        if replica.leads:
            feed = self._feed_of(replica, broker)
            return feed is not None and feed.send_range(replica.key, message)
        up = self.uplinks.get((broker, self._lanes.get(replica.key, ConnectionKind.REPLICA)))
        return up is not None and replica.key in up.replicas and up.send_range(replica, message)

    def _is_on_wrong_lane(self, replica: Replica, lane: ConnectionKind, position: Position) -> bool:
        if not replica.leads or position.leader_epoch != replica.leader_epoch:
            return False
        gap = replica.log.end_offset - position.end_offset
        if lane is ConnectionKind.REPLICA:
            return gap > 0 and replica.log.bytes_from(position.end_offset) > self._catch_up_min
        return gap <= 0 or replica.log.bytes_from(position.end_offset) <= self._catch_up_done

    def answer(self, replica: Replica, broker: int, message: FromLeader) -> None:
        feed = self._feed_of(replica, broker)
        if feed is not None:
            feed.answer(replica.key, message)

    def send_batches(self, replica: Replica, wanted: SendBatches) -> None:
        feed = self._feed_of(replica, wanted.broker)
        if feed is not None:
            feed.send_batches(replica, wanted)

    def _feed_of(self, replica: Replica, broker: int) -> ReplicaFeed | None:
        return self.feeds.get((broker, self._asked_on.get((broker, replica.key), ConnectionKind.REPLICA)))

    def forget(self, replica: Replica) -> None:
        """Forgets the requests of followers to a replica that is no longer on this broker."""
        for (broker, key), lane in list(self._asked_on.items()):
            if key == replica.key:
                del self._asked_on[broker, key]
                feed = self.feeds.get((broker, lane))
                if feed is not None:
                    feed.forget(key)
