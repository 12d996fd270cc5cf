"""Failures that only a broker has: they end it or keep it from starting.

What a client can see is in `tidelog.errors`.
"""

from __future__ import annotations

from tidelog.errors import Unavailable

MEND = (
    "if its cluster has other brokers, empty the data directory and start the broker again: they refill it. "
    "Do not put a copy of it back: what was acknowledged since would be lost. If the broker is alone, see "
    '"A data directory is damaged" in docs/operations.md'
)
"""What a message advises when a data directory is damaged.

A copy of the directory is never the advice: the other brokers count on what this one acknowledged since
the copy was made, and a broker that forgot it would be counted as if it had it (R19)."""


class BrokerError(Exception):
    """The broker cannot start or go on; the message says what to do."""


class DataDirectoryError(BrokerError):
    """The data directory is missing, foreign, locked, of another version or marked FAILED."""


class DirectoryDamaged(DataDirectoryError):
    """Nothing in the data directory may be believed any more; emptied, other brokers refill it (R19)."""


class RunOver(BrokerError):
    """This run of the broker must end, although its disk works; the message says what to do."""


class StorageFailure(BrokerError):
    """A write could not be undone or a flush failed: what is on disk is unknown (DESIGN 4.3)."""


class NotConnected(Unavailable):
    """There is no connection to a broker: nothing was asked, and its controller has said nothing."""

    def __init__(self, broker: int) -> None:
        super().__init__(f"broker {broker} is not connected; try again", retry_after_ms=100)


class NotController(Unavailable):
    """Only the controller does this; `controller` and its address are named if they are known.

    To a client it is `UNAVAILABLE`: definite, and worth another try.
    """

    def __init__(self, controller: int | None, address: tuple[str, int] | None = None) -> None:
        who = "no controller is known" if controller is None else f"broker {controller} is the controller"
        facts = {} if controller is None else {"controller": controller}
        super().__init__(f"this broker is not the controller; {who}", retry_after_ms=100, **facts)
        self.controller = controller
        self.address = address
        """Of its peer listener."""
