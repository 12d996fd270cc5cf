"""Routing in a simulated NATS server: which connections get a message that a client publishes.

Neighbours: `client` and `route` are the two kinds of connection, `server` accepts them.
"""

from __future__ import annotations

from typing import Protocol

from simulator.nats.interest import Interest, is_met


class Subscriber(Protocol):
    """A client's connection."""

    subscriptions: dict[bytes, bytes]
    """Pattern by sid."""

    def deliver(self, sid: bytes, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None: ...


class OtherServer(Protocol):
    """A route to another server."""

    interest: Interest
    """What the other server's clients subscribe to."""

    def wanted(self, pattern: bytes) -> None: ...

    def unwanted(self, pattern: bytes) -> None: ...

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None: ...


class Router:
    """The subscriptions of one run of a server."""

    def __init__(self) -> None:
        self.interest = Interest()
        """Of the server's own clients."""
        self.clients: dict[Subscriber, None] = {}
        self.routes: dict[OtherServer, None] = {}

    def __repr__(self) -> str:
        return f"<Router clients={len(self.clients)} routes={len(self.routes)}>"

    # --- subscriptions

    def joined(self, client: Subscriber) -> None:
        self.clients[client] = None

    def left(self, client: Subscriber) -> None:
        self.clients.pop(client, None)

    def wanted(self, pattern: bytes) -> None:
        """A client subscribes; the other servers are told of a pattern that is new here."""
        if self.interest.add(pattern):
            for route in self.routes:
                route.wanted(pattern)

    def unwanted(self, pattern: bytes) -> None:
        if self.interest.remove(pattern):
            for route in self.routes:
                route.unwanted(pattern)

    # --- messages

    def publish(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, besides: Subscriber | None
    ) -> bool:
        """Sends a client's message to all subscribers but `besides`; whether there is a subscriber."""
        heard = self.deliver(subject, reply, headers, payload, besides=besides)
        for route in self.routes:
            if route.interest.wants(subject):
                route.send(subject, reply, headers, payload)
                heard = True
        return heard

    def deliver(
        self,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        *,
        besides: Subscriber | None = None,
        only: Subscriber | None = None,
    ) -> bool:
        """Sends a message to subscribers at this server; whether there is one."""
        heard = False
        for client in list(self.clients) if only is None else [only]:
            if client is besides:
                continue
            for sid, pattern in list(client.subscriptions.items()):
                if is_met(pattern, subject):
                    client.deliver(sid, subject, reply, headers, payload)
                    heard = True
        return heard
