"""Which server to try next.

It exists so that reconnecting is a list walked in rounds: the addresses we were given, in an
order of this broker's own, then those the servers told us about. ``connection`` asks.
"""

import random
from collections.abc import Sequence

from tidelog_broker.nats.errors import ServerAddressInvalid
from tidelog_broker.nats.settings import Server, parse_server

SERVERS_DISCOVERED_MAX = 100
"""Most addresses remembered from INFO."""


class Servers:
    """The known servers, and the round of attempts under way."""

    def __init__(self, addresses: Sequence[str], rng: random.Random) -> None:
        if not addresses:
            raise ServerAddressInvalid("a connection to NATS needs the address of at least one server")
        self._given = [parse_server(address) for address in addresses]
        # Brokers that share a list must not all lean on its first server.
        rng.shuffle(self._given)
        self._discovered: list[Server] = []
        self._leaving: set[tuple[str, int]] = set()
        self._round: list[Server] = []

    def __repr__(self) -> str:
        return f"<Servers given={len(self._given)} discovered={len(self._discovered)}>"

    @property
    def known(self) -> list[Server]:
        """Every server, in the order they are tried; those that announced their shutdown last."""
        servers = self._given + self._discovered
        return sorted(servers, key=lambda server: (server.host, server.port) in self._leaving)

    def next(self) -> Server | None:
        """Return the next server of this round, or None at the end of one."""
        return self._round.pop(0) if self._round else None

    def start_round(self) -> None:
        """Begin again with every known server."""
        self._round = self.known

    def learn(self, source: Server, addresses: object, *, leaving: bool) -> None:
        """Take in what INFO from a server says: its peers' addresses, and whether it is about to stop."""
        place = (source.host, source.port)
        self._leaving = self._leaving | {place} if leaving else self._leaving - {place}
        if not isinstance(addresses, list):
            return
        taken = {(server.host, server.port) for server in self._given}
        found = []
        for address in addresses[:SERVERS_DISCOVERED_MAX]:
            try:
                server = source.discovered(str(address))
            except ServerAddressInvalid:
                continue
            if (server.host, server.port) not in taken:
                taken.add((server.host, server.port))
                found.append(server)
        self._discovered = found
        self._leaving &= taken
