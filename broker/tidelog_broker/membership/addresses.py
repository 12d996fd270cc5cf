"""The peer addresses of the brokers of the cluster, as far as this broker knows them.

The image names them, a greeting names its sender's, and a broker that is not the controller names the
controller's. Neighbours: `control_connections` dials them, `quorum.leadership` passes them on.
"""

from __future__ import annotations

from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
"""Host and port of a peer listener."""


class AddressBook:
    """The newest known address of each broker."""

    def __init__(self) -> None:
        self._addresses: dict[int, Address] = {}

    def __repr__(self) -> str:
        return f"<AddressBook brokers={sorted(self._addresses)}>"

    def learn(self, broker: int, address: Address) -> bool:
        """Keeps the address of a broker; returns whether it differs from the one that was known."""
        known, self._addresses[broker] = self._addresses.get(broker), address
        return known != address

    def get(self, broker: int) -> Address | None:
        """None: the address is not known yet."""
        return self._addresses.get(broker)
