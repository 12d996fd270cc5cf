"""The choice among the addresses of a broker: a client may not reach all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.model import BrokerDescription, Listener

PEER_LISTENER: Final = "peer"
"""The listener for other brokers; clients never use it."""


class Listeners:
    """Chooses one address for each broker."""

    def __init__(self, given: Collection[str], name: str = "") -> None:
        """`given`: the addresses that the user gave; `name`: the listener that the user named, or empty."""
        self._given = given
        self._told = name
        self._found: frozenset[str] = frozenset()
        """The names of the listeners whose addresses the user gave. A name stays right when a broker moves
        to another address, because its listener keeps the name."""

    def __repr__(self) -> str:
        return f"<Listeners {self._told or ', '.join(sorted(self._found)) or 'any'}>"

    def reachable(self, brokers: Sequence[BrokerDescription]) -> dict[int, str]:
        """The address to use by broker id; a broker without a usable address is left out.

        Raises `InvalidRequest` if the user named a listener that no broker has.
        """
        theirs = {
            broker.broker_id: [one for one in broker.listeners if one.name != PEER_LISTENER]
            for broker in brokers
        }
        every = [one for listeners in theirs.values() for one in listeners]
        if self._told and every and all(one.name != self._told for one in every):
            names = ", ".join(sorted({one.name for one in every}))
            raise InvalidRequest(
                f"no broker has a listener {self._told}; the brokers have {names}", field="listener"
            )
        self._found |= {one.name for one in every if one.target in self._given}
        chosen = {broker: self._of(listeners) for broker, listeners in theirs.items()}
        return {broker: target for broker, target in chosen.items() if target}

    def _of(self, listeners: Sequence[Listener]) -> str:
        """The address of one broker; empty: it has none."""
        if self._told:
            right = [one for one in listeners if one.name == self._told]
        else:
            exact = [one for one in listeners if one.target in self._given]
            alike = [one for one in listeners if one.name in self._found]
            right = [*exact, *alike, *listeners]
        return right[0].target if right else ""
