"""Brokers tell the controller, heartbeat by heartbeat, what speaks against their leading (R6, 2c, F7)."""

from __future__ import annotations

from quorum.conftest import Cluster
from tidelog_broker.clock import system_clock
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.controller.deprioritized import Reason

KEY = (b"s" * 16, 0)


async def test_the_controller_knows_damaged_replicas_and_wrong_clocks_until_they_are_well(
    cluster: Cluster,
) -> None:
    await cluster.quorum()
    controller = await cluster.elected()
    damaged, off = (one for one in cluster.brokers if one is not controller)
    clock = off.controller.clock

    def deprioritized() -> dict[int, int]:
        active = controller.controller.active
        return {} if active is None else dict(active.deprioritized.of(active.tip, KEY))

    damaged.host.damaged = (ReplicaName(*KEY),)
    clock.wall = lambda: system_clock() - 5_000_000
    expected = {damaged.id: Reason.DAMAGED, off.id: Reason.CLOCK_OFF}
    await cluster.eventually(lambda: deprioritized() == expected)
    assert 4_500_000 < clock.ahead_us <= 5_100_000

    damaged.host.damaged = ()
    clock.wall = system_clock
    await cluster.eventually(lambda: deprioritized() == {})
