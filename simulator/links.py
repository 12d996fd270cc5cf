"""A simulated broker's connections for replication: one to each leader's broker, one from each follower's.

Of several connections from one broker only the newest counts, and of several roles of a replica: what was
said to an earlier one is not delivered (`core.replication.messages`). What a lost connection proves is told
to the controller (R14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from simulator.old_network import Connection
from simulator.replica import Key, Replica
from simulator.world import MS
from tidelog_broker.core.metadata.reports import Evidence
from tidelog_broker.core.replication.messages import FromFollower, FromLeader

if TYPE_CHECKING:
    from simulator.broker import Broker

REDIAL_US: Final = 50 * MS


class Hello(NamedTuple):
    """The first words of a follower's broker."""

    broker: int
    incarnation: bytes


class _Up:
    """This broker follows: its end of the connection to a leader's broker."""

    def __init__(self, links: Links, leader: int) -> None:
        self._links = links
        self.leader = leader
        self.connection: Connection | None = None
        self.replicas: dict[Key, Replica] = {}
        self.dialing = False
        self.was_up = False
        self.silent = False
        """The last connection ended because nothing came over it."""

    def received(self, connection: Connection, message: object) -> None:
        if connection is not self.connection:
            return
        assert isinstance(message, tuple)
        key, number, words = message
        replica = self.replicas.get(key)
        if replica is not None and replica.number == number:
            replica.received(words)

    def broken(self, connection: Connection, *, refused: bool) -> None:
        if connection is not self.connection:
            return
        self.connection = None
        self.silent = connection.cut
        for replica in list(self.replicas.values()):
            replica.unlinked()
        self._links.dial(self)


class _Down:
    """This broker leads: its end of the connection from a follower's broker."""

    def __init__(self, links: Links, connection: Connection) -> None:
        self._links = links
        self._connection = connection
        self.hello: Hello | None = None

    def received(self, connection: Connection, message: object) -> None:
        if isinstance(message, Hello):
            self.hello = message
            self._links.came(message, connection)
            return
        if self.hello is None or self._links.down.get(self.hello.broker) is not connection:
            return
        assert isinstance(message, tuple)
        self._links.asked(self.hello, *message)

    def broken(self, connection: Connection, *, refused: bool) -> None:
        if self.hello is not None and self._links.down.get(self.hello.broker) is connection:
            self._links.went(self.hello, refused=refused)


class Links:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._up: dict[int, _Up] = {}
        self.down: dict[int, Connection] = {}
        """By follower's broker: the newest."""
        self._hellos: dict[int, Hello] = {}
        self._numbers: dict[tuple[int, Key], int] = {}
        """Of the newest question of a follower: what answers an earlier role of it, it passes over."""

    # --- following

    def follow(self, replica: Replica, leader: int) -> None:
        up = self._up.get(leader)
        if up is None:
            up = self._up[leader] = _Up(self, leader)
        up.replicas[replica.key] = replica
        if up.connection is not None:
            replica.linked()
        else:
            self.dial(up)

    def unfollow(self, replica: Replica) -> None:
        for up in self._up.values():
            up.replicas.pop(replica.key, None)

    def say(self, leader: int, key: Key, number: int, message: FromFollower) -> None:
        up = self._up.get(leader)
        if up is not None and up.connection is not None:
            up.connection.send(self._broker.id, (key, number, message))

    def dial(self, up: _Up) -> None:
        if up.dialing or up.connection is not None or not up.replicas:
            return
        up.dialing = True
        broker = self._broker
        target = broker.others.get(up.leader)
        assert target is not None, "brokers are known from the start"

        def opened(connection: Connection) -> _Up:
            up.dialing = False
            up.connection = connection
            up.was_up = True
            connection.send(broker.id, Hello(broker.id, broker.incarnation))
            for replica in list(up.replicas.values()):
                replica.linked()
            return up

        def failed(refused: bool) -> None:
            up.dialing = False
            if up.was_up or refused:
                broker.asking.report(up.leader, _evidence(up.silent, refused=refused))
            up.was_up = False
            if refused:
                broker.quorum.refused(up.leader)
            broker.after(REDIAL_US, lambda: self.dial(up))

        broker.network.dial(broker.id, up.leader, opened, lambda c: target.links.accept(c), failed)

    # --- leading

    def accept(self, connection: Connection) -> _Down:
        return _Down(self, connection)

    def came(self, hello: Hello, connection: Connection) -> None:
        old = self.down.get(hello.broker)
        if old is not None:
            self.went(hello, refused=False)
            # Perhaps it is the newer one, whose greeting was faster: its other end has to hear of it.
            old.close(self._broker.id)
        self.down[hello.broker] = connection
        self._hellos[hello.broker] = hello
        for replica in list(self._broker.replicas.values()):
            replica.follower_linked(hello.broker, hello.incarnation)

    def went(self, hello: Hello, *, refused: bool) -> None:
        del self.down[hello.broker]
        del self._hellos[hello.broker]
        for replica in list(self._broker.replicas.values()):
            replica.follower_unlinked(hello.broker, refused=refused)

    def leads(self, replica: Replica) -> None:
        """A replica begins to lead: it hears of the connections that are there."""
        for hello in list(self._hellos.values()):
            replica.follower_linked(hello.broker, hello.incarnation)

    def asked(self, hello: Hello, key: Key, number: int, message: FromFollower) -> None:
        self._numbers[hello.broker, key] = number
        replica = self._broker.replicas.get(key)
        answer: FromLeader | None
        if replica is None:
            answer = self._broker.unknown_here(key)
        else:
            answer = replica.asked(hello.broker, hello.incarnation, message)
        if answer is not None:
            self.answer(hello.broker, key, answer)

    def answer(self, broker: int, key: Key, message: FromLeader) -> None:
        connection = self.down.get(broker)
        if connection is not None:
            connection.send(self._broker.id, (key, self._numbers.get((broker, key), 0), message))


def _evidence(silent: bool, *, refused: bool) -> Evidence:
    if refused:
        return Evidence.REFUSED
    return Evidence.SILENT if silent else Evidence.RESET
