"""Which of a broker's addresses a client uses: not everybody reaches all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.model import BrokerDescription, Listener

PEER_LISTENER: Final = "peer"
"""The listener that is not for clients."""


class Listeners:
    """Chooses one of each broker's."""

    def __init__(self, given: Collection[str], name: str = "") -> None:
        """`given`: the addresses that the client was told; `name`: of the listener, if it was told that."""
        self._given = given
        self._told = name
        self._found: frozenset[str] = frozenset()
        """Names of the listeners whose addresses were given. Those stay right when a broker has moved away
        from the address: it has another one of the same name."""

    def __repr__(self) -> str:
        return f"<Listeners {self._told or ', '.join(sorted(self._found)) or 'any'}>"

    def reachable(self, brokers: Sequence[BrokerDescription]) -> dict[int, str]:
        """By broker, the address to use; a broker without one is left out.

        Raises `InvalidRequest` if the client was told of a listener that no broker has.
        """
        theirs = {
            broker.broker_id: [one for one in broker.listeners if one.name != PEER_LISTENER]
            for broker in brokers
        }
        every = [one for listeners in theirs.values() for one in listeners]
        if self._told and every and all(one.name != self._told for one in every):
            names = ", ".join(sorted({one.name for one in every}))
            raise InvalidRequest(
                f"no broker has a listener {self._told}; they have {names}", field="listener"
            )
        self._found |= {one.name for one in every if one.target in self._given}
        chosen = {broker: self._of(listeners) for broker, listeners in theirs.items()}
        return {broker: target for broker, target in chosen.items() if target}

    def _of(self, listeners: Sequence[Listener]) -> str:
        """One broker's; empty: none."""
        if self._told:
            right = [one for one in listeners if one.name == self._told]
        else:
            exact = [one for one in listeners if one.target in self._given]
            alike = [one for one in listeners if one.name in self._found]
            right = [*exact, *alike, *listeners]
        return right[0].target if right else ""
