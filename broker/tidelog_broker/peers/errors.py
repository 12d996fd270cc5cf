"""Why a connection to another broker could not be opened, or ended."""

from __future__ import annotations

from tidelog_broker.errors import BrokerError
from tidelog_broker.model import Recovery


class PeerError(BrokerError):
    """The root."""


class ProtocolBroken(PeerError):
    """What the other end sent is no frame or no word of ours."""


class PeerUnreachable(PeerError):
    """No connection came about: no route, no answer in time, or it broke during the first words."""


class PeerRefused(PeerError):
    """Its machine refused the connection: nobody listens there, so the process is gone (R14)."""


class WrongPeer(PeerError):
    """A broker, but not one that may be talked to: another cluster, another id, another version."""


class DirectoryRestored(WrongPeer):
    """The data directory of the broker that is refused was put back from a copy (R19)."""


class OtherHistory(WrongPeer):
    """A broker of this cluster whose metadata log is of another history: a recovery was forced (M2)."""

    def __init__(self, reason: str, recoveries: tuple[Recovery, ...]) -> None:
        super().__init__(reason)
        self.recoveries = recoveries
        """Of the end that refuses."""
