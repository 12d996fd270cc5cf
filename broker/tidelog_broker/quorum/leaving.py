"""What a stopping broker gives to others: the partitions that it leads, and the controller's role.

Neighbour: `quorum_controller` waits for both, for a limited time.
"""

from __future__ import annotations

from typing import Final

from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.membership.control_connections import ControlConnections
from tidelog_broker.model import Voter
from tidelog_broker.quorum.committed_image import CommittedImage
from tidelog_broker.quorum.driver import RaftDriver

HAND_OVER_SECONDS_MAX: Final = 1.0
"""How long a stopping controller waits for the next one, for each voter that it asks."""


def has_successors(image: ClusterImage, broker_id: int) -> bool:
    """Whether a broker leads a partition that another member of its ISR could lead."""
    able = {broker.id for broker in image.brokers.values() if broker.may_join and broker.id != broker_id}
    return any(
        partition.leader == broker_id and not able.isdisjoint(partition.isr)
        for stream in image.streams.values()
        for partition in stream.partitions
    )


async def hand_over(
    driver: RaftDriver, me: Voter, connections: ControlConnections, committed: CommittedImage
) -> None:
    """Transfers the leadership of the quorum to a voter that has the whole log.

    So no broker has to notice first that this one is gone.
    """
    node = driver.node

    def transferred() -> bool:
        leader = driver.node.leader
        return leader is not None and leader.broker_id != me.broker_id

    open_now = connections.open
    for voter in [voter for voter in node.configuration.voters if voter != me]:
        # The leadership may have ended while the transfer to the last voter was waited for.
        if voter.broker_id in open_now and node.leads:
            node.transfer(voter)
            driver.wake()
            try:
                # Until then the quorum may need this broker's vote.
                await committed.until(transferred, HAND_OVER_SECONDS_MAX)
            except TimeoutError:
                continue
            return
