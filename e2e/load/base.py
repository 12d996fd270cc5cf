"""The operations of a test on the load program, wherever it runs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final

from e2e.kube import wait_until

BEGIN_SECONDS_MAX: Final = 60.0
VERDICT_SECONDS_MAX: Final = 240.0
ACKNOWLEDGED_MIN: Final = 100
"""Records that must be acknowledged before a fault starts."""


class Load(ABC):
    """Running writers and readers."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @abstractmethod
    def _said(self) -> Iterable[str]:
        """Returns the output so far, by lines."""

    @abstractmethod
    def _stop(self) -> None:
        """Asks the program to stop and to check the history; does not wait."""

    @abstractmethod
    def _why_ended(self) -> str:
        """Returns why it does not run any more; empty: it runs."""

    @abstractmethod
    def close(self) -> None:
        """Removes it in any state."""

    def lines(self) -> list[dict[str, Any]]:
        """Returns the output so far."""
        return [json.loads(line) for line in self._said() if line.startswith("{")]

    def acknowledged(self) -> int:
        return max((line.get("acknowledged", 0) for line in self.lines()), default=0)

    def pause_since(self, at: float) -> float:
        """Returns the longest time without an acknowledgement in any partition, of the pauses that ended
        after `at`."""
        found = [max(line["pauses"].values(), default=0.0) for line in self.lines() if line.get("at", 0) > at]
        return max(found, default=0.0)

    def begun(self) -> None:
        self.flows(ACKNOWLEDGED_MIN)

    def flows(self, records: int = 1) -> None:
        """Waits until this many more records are acknowledged."""
        enough = self.acknowledged() + records
        wait_until(
            lambda: "" if self.acknowledged() >= enough else f"nothing is acknowledged {self._why_ended()}",
            BEGIN_SECONDS_MAX,
        )

    def verdict(self) -> dict[str, Any]:
        """Stops the program and returns its verdict."""
        self._stop()
        wait_until(self._lacks_verdict, VERDICT_SECONDS_MAX)
        found: dict[str, Any] = next(line["verdict"] for line in self.lines() if "verdict" in line)
        return found

    def _lacks_verdict(self) -> str:
        if any("verdict" in line for line in self.lines()):
            return ""
        why = self._why_ended()
        assert not why, f"the load ended: {why}"
        return "there is no verdict yet"
