"""Changes of leader by request wait as the controller's own do (`core.metadata.handovers`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.commands import PartitionChange
from tidelog_broker.core.metadata.handovers import SETTLE_MS_MAX
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.runtime.quorum_controller import QuorumController

LOOK_SECONDS: Final = 0.02

WAIT_MS_MAX: Final = SETTLE_MS_MAX + 500
"""However many leaders more are to change by then."""


async def until_settled(
    quorum: QuorumController, planned: Callable[[ClusterImage], tuple[PartitionChange, ...]]
) -> None:
    """Returns when the leaders that `planned` deposes have settled, or were given their time.

    At once on a broker that is not the controller, and if `planned` raises: whoever decides is told why.
    """
    give_up_ms = quorum.now_ms + WAIT_MS_MAX
    while (duties := quorum.duties) is not None and quorum.now_ms < give_up_ms:
        try:
            changes = planned(duties.tip)
        except TidelogError:
            return
        if len(duties.handovers.due(duties.tip, changes, quorum.now_ms)) == len(changes):
            return
        await asyncio.sleep(LOOK_SECONDS)
