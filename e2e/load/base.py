"""What a test asks of the load program, wherever that runs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final

from e2e.kube import wait_until

BEGIN_SECONDS_MAX: Final = 60.0
VERDICT_SECONDS_MAX: Final = 240.0
ACKNOWLEDGED_MIN: Final = 100
"""Records, before anything happens to the cluster."""


class Load(ABC):
    """Writers and readers, running."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @abstractmethod
    def _said(self) -> Iterable[str]:
        """Its output so far, by lines."""

    @abstractmethod
    def _stop(self) -> None:
        """Has it stop and judge; does not wait."""

    @abstractmethod
    def _why_ended(self) -> str:
        """Why it does not run any more; empty: it runs."""

    @abstractmethod
    def close(self) -> None:
        """Takes it away, however it stands."""

    def lines(self) -> list[dict[str, Any]]:
        """What it said so far."""
        return [json.loads(line) for line in self._said() if line.startswith("{")]

    def acknowledged(self) -> int:
        return max((line.get("acknowledged", 0) for line in self.lines()), default=0)

    def pause_since(self, at: float) -> float:
        """The longest time without an acknowledgement in some stream's partition, that ended after `at`."""
        found = [max(line["pauses"].values(), default=0.0) for line in self.lines() if line.get("at", 0) > at]
        return max(found, default=0.0)

    def begun(self) -> None:
        self.flows(ACKNOWLEDGED_MIN)

    def flows(self, records: int = 1) -> None:
        """Waits until so many more records are acknowledged than are now."""
        enough = self.acknowledged() + records
        wait_until(
            lambda: "" if self.acknowledged() >= enough else f"nothing is acknowledged {self._why_ended()}",
            BEGIN_SECONDS_MAX,
        )

    def verdict(self) -> dict[str, Any]:
        """Has it stop and judge."""
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
