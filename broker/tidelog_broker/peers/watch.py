"""Decides what a broken or silent connection proves against a broker (R14). Pure: time is a parameter.

A process that ended is *refused* at the first redial: its machine is there and reports that no process
listens. A machine that ended *resets* the redial or swallows it. A process that hangs is *silent* on an open
connection. Nothing else proves anything, for example a lost connection that the next dial replaces.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tidelog_broker.peers.connection import STALL_SECONDS

SILENCE_SECONDS_MAX: Final = 0.5
"""`peer_silence_max`: a connection says something every 0.1 s (`connection.KEEPALIVE_SECONDS`)."""

REDIAL_SECONDS_MAX: Final = 0.05
"""A redial that takes longer counts as failed (R14)."""


class Evidence(StrEnum):
    """The strongest first."""

    REFUSED = "refused"
    RESET = "reset"
    SILENT = "silent"


class Watch:
    """The evidence against one broker. Times are seconds of one clock."""

    __slots__ = ("_in_doubt", "_looked", "_since", "_was_up", "evidence")

    def __init__(self, now: float) -> None:
        self.evidence: Evidence | None = None
        """None: nothing."""
        self._was_up = False
        """It was connected since it was last found gone. A broker that was never there proves nothing."""
        self._in_doubt = False
        """The end of the connection proves nothing against the other end, unless it refuses the next one."""
        self._looked = now
        self._since = now
        """Silence counts from here if the broker was heard earlier."""

    def connected(self, now: float) -> None:
        self._was_up = True
        self._in_doubt = False
        self._looked = self._since = now
        self.evidence = None

    def ended(self, now: float, *, silent: bool) -> None:
        """The connection ended; `silent`: this end gave it up, because nothing was heard.

        Silence stays silence, whatever the next dial brings. And the other end gives up, too:
        a process that wakes up and finds all connections gone was the silent one itself.
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
        """A dial failed, or did not succeed in time."""
        if self._was_up and not self._in_doubt:
            self.evidence = Evidence.RESET
            self._was_up = False

    def look(self, heard: float, now: float) -> None:
        """It is connected and was last heard at `heard`. To be called about every 0.1 s."""
        if now - self._looked > STALL_SECONDS:
            self._since = now
        self._looked = now
        silent = now - max(heard, self._since) > SILENCE_SECONDS_MAX
        self.evidence = Evidence.SILENT if silent else None
