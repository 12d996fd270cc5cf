"""Which of a broker's addresses a client uses: not everybody reaches all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.model import BrokerDescription

PEER_LISTENER: Final = "peer"
"""The listener that is not for clients."""


def reachable(brokers: Sequence[BrokerDescription], given: Collection[str], listener: str) -> dict[int, str]:
    """By broker, the address to use; a broker without one is left out.

    `listener`: its name, where the client was told. Else that of an address that the client was `given`,
    or one of the same name, or the first one. Raises `InvalidRequest` if no broker has that listener.
    """
    open_ones = {
        broker.broker_id: [one for one in broker.listeners if one.name != PEER_LISTENER] for broker in brokers
    }
    every = [one for listeners in open_ones.values() for one in listeners]
    if listener and every and all(one.name != listener for one in every):
        names = ", ".join(sorted({one.name for one in every}))
        raise InvalidRequest(f"no broker has a listener {listener}; they have {names}", field="listener")
    names_given = {one.name for one in every if one.target in given}
    found: dict[int, str] = {}
    for broker, listeners in open_ones.items():
        named = [one.target for one in listeners if one.name == listener]
        if not listener:
            exact = [one.target for one in listeners if one.target in given]
            alike = [one.target for one in listeners if one.name in names_given]
            named = [*exact, *alike, *(one.target for one in listeners)]
        if named:
            found[broker] = named[0]
    return found
