"""The feature level: a number that only grows and says what all brokers of a cluster understand.

Every broker makes the image from the same entries, so the effect of an entry may change with a version of
the software only when no broker of an earlier version is left. The controller raises the level by an entry as
soon as each registered broker has reported, with a heartbeat of its registered run, that it understands the
next level. From then on the cluster refuses brokers that do not understand it (`controller.registration`), so
an upgrade cannot be undone any more.

This is the controller's memory, not the cluster's: a new controller collects it again (M3).
"""

from __future__ import annotations

from typing import Final

from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, RaiseFeatureLevel
from tidelog_broker.core.metadata.image import ClusterImage

ASSIGNMENTS: Final = 2
"""From this level on, assignments of replicas have ids (R16), and replicas report whether their records are
flushed or only written (R17)."""

SINKS: Final = 3
"""From this level on, the image has sinks, and batches of sinks are written (S1)."""

ACCESS: Final = 4
"""From this level on, the image has rules (A4) and tokens (A1)."""


class FeatureLevels:
    """The levels that the brokers reported."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[bytes, int]] = {}

    def __repr__(self) -> str:
        return f"<FeatureLevels { ({broker: level for broker, (_, level) in self._said.items()}) }>"

    def heard(self, broker: int, incarnation: bytes, level: int) -> None:
        """A heartbeat of this run reports that the broker understands `level` and all earlier levels."""
        self._said[broker] = (incarnation, level)

    def next_command(self, image: ClusterImage) -> RaiseFeatureLevel | None:
        """None: the level stays, because a broker does not understand the next one, or has not reported
        yet."""
        if not image.brokers:
            return None
        level = min(FEATURE_LEVEL, *(self._of(one.id, one.incarnation) for one in image.brokers.values()))
        return RaiseFeatureLevel(level) if level > image.feature_level else None

    def _of(self, broker: int, incarnation: bytes) -> int:
        run, level = self._said.get(broker, (b"", 0))
        return level if run == incarnation else 0
