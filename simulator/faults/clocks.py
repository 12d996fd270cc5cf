"""Wrong clocks: the clock of one broker at a time is wrong by hours or days, ahead or behind, for a while
(R18).

Only one clock at a time, because brokers believe a majority of clocks that are wrong by the same time
(docs/replication.md, Not covered).
"""

from __future__ import annotations

from typing import Final

from simulator.cluster import Cluster
from simulator.node import Node
from simulator.world import SECOND

HOUR_US: Final = 3_600 * SECOND

JUMPS_US: Final = (HOUR_US // 2, 6 * HOUR_US, 20 * HOUR_US, 50 * HOUR_US, 30 * 24 * HOUR_US)
"""Some are smaller than `retention_step`, or than the time by which clients' timestamps may be ahead of a
leader's clock."""

WRONG_US: Final = (SECOND, 12 * SECOND)
"""How long a clock is wrong, at least and at most."""

HEARD_US: Final = 2 * SECOND
"""After this time a run of a broker has told the controller the time of its clock."""


class ClockFaults:
    """Makes one clock wrong, and corrects it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.world.rng_of("clocks")
        self._wrong: Node | None = None
        self._believed = False
        """The controller may still use the clock of a run that ended while it was wrong; it is right
        again."""
        self._right_us = 0
        """The skew of the clock before the jump."""

    def jump(self) -> None:
        """The clock of a broker jumps; later it is corrected."""
        if self._wrong is not None or self._believed:
            return
        cluster, rng = self._cluster, self._rng
        node = self._wrong = rng.choice([cluster.nodes[number] for number in sorted(cluster.nodes)])
        self._right_us = node.skew_us
        jump_us = rng.choice(JUMPS_US) * rng.choice((1, -1))
        node.skew_us += jump_us
        cluster.checks.mark(f"R18 clock jumped {'ahead' if jump_us > 0 else 'back'}")
        cluster.world.tell(f"the clock of broker {node.id} jumps by {jump_us // SECOND} s")
        cluster.world.after(rng.randint(*WRONG_US), self.set_right)

    def set_right(self) -> None:
        node, self._wrong = self._wrong, None
        if node is not None:
            node.skew_us = self._right_us
            self._cluster.world.tell(f"the clock of broker {node.id} is right again")
            self._believed = True
            self._hear(node, None)

    def _hear(self, node: Node, run: int | None) -> None:
        """Waits until the controller knows the corrected clock. `run`: the run of the broker at the last
        look, with the clock as it is now; None: there was none."""
        known = self._cluster.checks.image.brokers.get(node.id)
        self._believed = known is not None and not known.fenced and (not node.running or node.run != run)
        if self._believed:
            self._cluster.world.after(HEARD_US, lambda: self._hear(node, node.run if node.running else None))
