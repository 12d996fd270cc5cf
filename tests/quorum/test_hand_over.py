"""A controller that stops hands over to one voter or another, and ends well if it is none any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorum.conftest import Cluster


async def test_a_controller_that_is_deposed_while_it_hands_over_stops_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.quorum()
    stopping = await cluster.elected()
    node = stopping.controller._driver.node
    waits: list[float] = []

    async def too_late(condition: Callable[[], bool], seconds: float) -> None:
        waits.append(seconds)
        await cluster.eventually(lambda: not node.leads)
        raise TimeoutError

    monkeypatch.setattr(stopping.controller._committed, "until", too_late)

    await stopping.stop()

    assert len(waits) == 1
    await cluster.eventually(lambda: cluster.controller not in (None, stopping))
