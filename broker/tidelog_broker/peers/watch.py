"""What a broken or silent connection proves against a broker (R14). Pure: the time comes in.

A process that ended is *refused* at the first redial: its machine is there and says that nobody
listens. A machine that ended *resets* or swallows it. One that hangs is *silent* on a connection that
stands. Everything else, such as one lost connection that the next dial mends, proves nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tidelog_broker.peers.connection import STALL_SECONDS

SILENCE_SECONDS_MAX: Final = 0.5
"""`peer_silence_max`: a connection says something every 0.1 s (`connection.KEEPALIVE_SECONDS`)."""

REDIAL_SECONDS_MAX: Final = 0.05
"""A redial that has not come about by then counts as failed (R14)."""


class Evidence(StrEnum):
    """In the order of what they are worth."""

    REFUSED = "refused"
    RESET = "reset"
    SILENT = "silent"


class Watch:
    """What is known against one broker. Times in seconds of one clock."""

    __slots__ = ("_in_doubt", "_looked", "_since", "_was_up", "evidence")

    def __init__(self, now: float) -> None:
        self.evidence: Evidence | None = None
        """None: nothing."""
        self._was_up = False
        """It was connected since it was last found gone: never having been there proves nothing."""
        self._in_doubt = False
        """How the connection ended says nothing of the other end, unless that refuses the next one."""
        self._looked = now
        self._since = now
        """Silence counts from here, if it was heard before."""

    def connected(self, now: float) -> None:
        self._was_up = True
        self._in_doubt = False
        self._looked = self._since = now
        self.evidence = None

    def ended(self, now: float, *, silent: bool) -> None:
        """The connection is over; `silent`: given up here, because nothing was heard.

        A silence stays what it was, whatever comes of the next dial. And the other end gives up, too:
        whoever wakes up to find all connections gone was itself the silent one.
        """
        self._in_doubt = silent or now - self._looked > STALL_SECONDS
        if silent:
            self.evidence = Evidence.SILENT

    def refused(self) -> None:
        """A dial was refused."""
        if self._was_up or self.evidence is not None:
            self.evidence = Evidence.REFUSED
            self._was_up = False

    def unreachable(self) -> None:
        """A dial came to nothing in time."""
        if self._was_up and not self._in_doubt:
            self.evidence = Evidence.RESET
            self._was_up = False

    def look(self, heard: float, now: float) -> None:
        """It is connected and last said something at `heard`. To be called every 0.1 s or so."""
        if now - self._looked > STALL_SECONDS:
            self._since = now
        self._looked = now
        silent = now - max(heard, self._since) > SILENCE_SECONDS_MAX
        self.evidence = Evidence.SILENT if silent else None
