"""Checks of volumes that changed while their broker was down: the broker must be refused on them (R19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks.truth import Knowledge, Setup, require

if TYPE_CHECKING:
    from simulator.node import Node
    from tidelog_broker.core.metadata.image import BrokerImage


class VolumeChecks(Knowledge):
    """Knows which volumes a fault has changed."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._lying: dict[int, tuple[int, bool]] = {}
        """By broker: the number of the disk that a fault changed, and whether it must be refused."""

    def volume_lies(self, node: Node, *, refused: bool) -> None:
        """A fault changed the disk of a broker."""
        self._lying[node.id] = (node.disks, refused)

    def lies(self, node: Node) -> bool:
        """Whether a fault changed the present disk of a broker."""
        return self._lying.get(node.id, (0, False))[0] == node.disks

    def registered(self, known: BrokerImage) -> None:
        """The image has a new run of a broker."""
        node = self.brokers[known.id]
        if node.incarnation == known.incarnation and self.lies(node):
            require(
                not self._lying[node.id][1],
                "R19",
                f"broker {node.id} has registered on a volume that was put back or has a rotten vital file",
            )
            # The broker did not need what was changed.
            del self._lying[node.id]
