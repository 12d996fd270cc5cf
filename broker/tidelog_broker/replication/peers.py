"""The interface through which replication reaches the other brokers and the controller.

Neighbour: `hosting.quorum_peers` implements it. A broker without peers has no implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal
from tidelog_broker.peers.hello import Identity
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.tls.credentials import Credentials


class Peers(Protocol):
    """The other brokers. No method may raise or block."""

    def identity(self) -> Identity:
        """The identity of this run of this broker, for the hello of connections (R2)."""

    @property
    def tls(self) -> Credentials | None:
        """For connections to other brokers; None: they are not encrypted."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """The last known address of a broker's peer listener; None: not known yet."""

    def evidence(self, broker_id: int, run: bytes, evidence: Evidence | None) -> None:
        """The evidence against run `run` of a leader's broker changed, by its replica connection (R14).

        None: there is no evidence.
        """

    def refuses(self, broker_id: int) -> bool:
        """Whether a broker's machine refuses connections, which means that its process is gone (R4)."""

    def propose_isr(self, proposals: Sequence[IsrProposal]) -> None:
        """Sends ISR changes to the controller, on any broker. The next image is the answer (R4)."""

    def feature_level(self) -> int:
        """The feature level of the image, which all brokers of the cluster understand."""

    def replica_lost(self, stream_id: bytes, partition: int, assignment: int, reason: str) -> None:
        """A log was set aside while the broker runs: reports it to the controller (2c)."""
