"""The broker around the quorum: it serves forwarded requests, and is told what concerns it.

`assembly` implements it, because the parts that act on these events are built on top of the quorum.
"""

from __future__ import annotations

from typing import Protocol

from tidelog_broker.errors import BrokerError
from tidelog_broker.membership.session import SessionListener


class QuorumHost(SessionListener, Protocol):
    """The broker around the quorum. All on the event loop; nothing may block."""

    def fail(self, error: BaseException) -> None:
        """The files of the metadata log failed. What is on disk is unknown, so the broker must end. Called
        once."""

    def end_run(self, error: BrokerError) -> None:
        """This run must not go on, although the disk works. Called once."""

    def peer_refused(self, broker: int) -> None:
        """The machine of a broker refuses connections: its process ended."""

    async def serve_call(self, rpc: str, request: bytes) -> bytes:
        """Serves a client's request that another broker forwarded to this one as the controller.

        Raises `TidelogError`."""
