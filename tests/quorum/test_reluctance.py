"""Brokers tell the controller, heartbeat by heartbeat, what speaks against their leading (R6, 2c, F7)."""

from __future__ import annotations

import pytest

from quorum.conftest import Cluster
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.reluctance import Unwilling
from tidelog_broker.runtime.clock import skew_us, system_clock

KEY = (b"s" * 16, 0)


@pytest.mark.parametrize(
    ("sent", "theirs", "came", "ahead"),
    [
        (100, 100, 100, 0),
        (100, 150, 200, 0),
        (100, 200, 200, 0),
        (100, 230, 200, 30),
        (100, 95, 200, -5),
        (200, 150, 100, -50),
    ],
)
def test_f7_only_what_the_round_trip_cannot_explain_is_skew(
    sent: int, theirs: int, came: int, ahead: int
) -> None:
    assert skew_us(sent, theirs, came) == ahead


async def test_the_controller_knows_what_is_damaged_and_whose_clock_is_off_until_it_is_well(
    cluster: Cluster,
) -> None:
    await cluster.quorum()
    controller = await cluster.elected()
    damaged, off = (one for one in cluster.brokers if one is not controller)
    shown: list[int] = []
    off.controller.membership.on_clock = shown.append

    def unwilling() -> dict[int, int]:
        duties = controller.controller.duties
        return {} if duties is None else dict(duties.reluctance.of(duties.tip, KEY))

    damaged.controller.membership.damaged = lambda: (ReplicaName(*KEY),)
    off.controller.membership.clock = lambda: system_clock() - 5_000_000
    expected = {damaged.id: Unwilling.DAMAGED, off.id: Unwilling.CLOCK_OFF}
    await cluster.eventually(lambda: unwilling() == expected)
    assert 4_500_000 < shown[-1] <= 5_100_000

    damaged.controller.membership.damaged = tuple
    off.controller.membership.clock = system_clock
    await cluster.eventually(lambda: unwilling() == {})
