"""Why a connection to another broker could not be opened, or ended."""

from __future__ import annotations

from tidelog_broker.errors import BrokerError
from tidelog_broker.model import Recovery


class PeerError(BrokerError):
    """The root."""


class ProtocolBroken(PeerError):
    """The other end sent something that is no frame or no message of this protocol."""


class PeerUnreachable(PeerError):
    """There is no connection: no route, no answer in time, or it broke before both ends had greeted."""


class PeerRefused(PeerError):
    """The machine refused the connection: no process listens there, so the broker ended (R14)."""


class WrongPeer(PeerError):
    """The other end is a broker that this one must not talk to: of another cluster, id or version."""


class DirectoryRestored(WrongPeer):
    """The data directory of the broker that is refused was restored from a copy (R19)."""


class OtherHistory(WrongPeer):
    """The metadata log of the other broker has another history: a recovery was forced (M2)."""

    def __init__(self, reason: str, recoveries: tuple[Recovery, ...]) -> None:
        super().__init__(reason)
        self.recoveries = recoveries
        """The history at the end that refuses."""
