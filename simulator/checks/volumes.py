"""Checks of volumes that are not what their broker left: a broker that was given one is refused (R19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.checks.truth import Knowledge, Setup, require

if TYPE_CHECKING:
    from simulator.node import Node
    from tidelog_broker.core.metadata.image import BrokerImage


class VolumeChecks(Knowledge):
    """See the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._lying: dict[int, tuple[int, bool]] = {}
        """By broker: which of its disks somebody put back or let rot, and whether it must be refused."""

    def volume_lies(self, node: Node, *, refused: bool) -> None:
        """From now on the disk that a broker has is not what it left."""
        self._lying[node.id] = (node.disks, refused)

    def lies(self, node: Node) -> bool:
        """Whether the disk that a broker has is such a one."""
        return self._lying.get(node.id, (0, False))[0] == node.disks

    def registered(self, known: BrokerImage) -> None:
        """The image shows another run of a broker."""
        node = self.brokers[known.id]
        if node.incarnation == known.incarnation and self.lies(node):
            require(
                not self._lying[node.id][1],
                "R19",
                f"broker {node.id} has registered on a volume that is not what it left",
            )
            # What was changed was nothing that it needed.
            del self._lying[node.id]
