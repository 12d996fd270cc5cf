"""What all brokers of a cluster understand, as a number that only grows: the feature level.

Every broker makes the image out of the same entries, so what an entry does may change with a version of
the software only once no broker of an earlier one is left. The controller raises the level by an entry as
soon as each registered broker has said, with a heartbeat of its registered run, that it understands the
next one. From then on the cluster refuses brokers that do not (`registration`), so an upgrade cannot be
taken back any more.

This is the controller's memory, not the cluster's: another controller asks for it again (M3).
"""

from __future__ import annotations

from typing import Final

from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, RaiseFeatureLevel
from tidelog_broker.core.metadata.image import ClusterImage

ASSIGNMENTS: Final = 2
"""From this level on assignments of replicas have ids (R16), and replicas say of which kind their
durability is (R17)."""


class FeatureLevels:
    """What the brokers have said that they understand."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[bytes, int]] = {}

    def __repr__(self) -> str:
        return f"<FeatureLevels { ({broker: level for broker, (_, level) in self._said.items()}) }>"

    def heard(self, broker: int, incarnation: bytes, level: int) -> None:
        """A heartbeat of this run says that it understands `level` and all before."""
        self._said[broker] = (incarnation, level)

    def next_command(self, image: ClusterImage) -> RaiseFeatureLevel | None:
        """None: the level stays, because a broker does not understand more, or did not say so yet."""
        if not image.brokers:
            return None
        level = min(FEATURE_LEVEL, *(self._of(one.id, one.incarnation) for one in image.brokers.values()))
        return RaiseFeatureLevel(level) if level > image.feature_level else None

    def _of(self, broker: int, incarnation: bytes) -> int:
        run, level = self._said.get(broker, (b"", 0))
        return level if run == incarnation else 0
