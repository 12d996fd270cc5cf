"""What the part of a broker that replicates needs of the part that knows the other brokers.

Neighbour: `quorum_peers` is that part. A broker without peers has none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal
from tidelog_broker.peers.hello import Identity
from tidelog_broker.peers.watch import Evidence


class Peers(Protocol):
    """Nothing here may raise or block."""

    def identity(self) -> Identity:
        """This run of this broker, for the first words of connections (R2)."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Where a broker's peer listener is thought to be; None: unknown for now."""

    def evidence(self, broker_id: int, run: bytes, evidence: Evidence | None) -> None:
        """What the replica connection proves against that run of a leader's broker changed (R14)."""

    def refuses(self, broker_id: int) -> bool:
        """The machine of a broker refuses connections: its process is gone (R4)."""

    def propose_isr(self, proposals: Sequence[IsrProposal]) -> None:
        """For the controller, whichever broker that is. The image is the answer (R4)."""

    def feature_level(self) -> int:
        """The image's: what all brokers of the cluster understand."""

    def replica_lost(self, stream_id: bytes, partition: int, assignment: int, reason: str) -> None:
        """A log was set aside while the broker runs: the controller is to know (2c)."""
