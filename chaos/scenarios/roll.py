"""A rolling restart of all brokers. No idempotent writer and no reader may get an error."""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.figures import standings, tally
from chaos.harness import Harness
from chaos.scenarios.steps import claim_no_errors, take_gaps

SETTLED_SECONDS: Final = 1.0
"""The load continues for this time after a stop or start, so that a late gap counts for it."""


async def act(harness: Harness, rounds: int) -> None:
    cluster, client = harness.cluster, harness.client
    await harness.healed("every replica is in sync")
    take_gaps(harness, "calm")
    for number in range(rounds):
        for broker in cluster.brokers:
            before = standings(await client.list_streams())
            await cluster.stop(broker)
            await asyncio.sleep(SETTLED_SECONDS)
            stopped = take_gaps(harness, "stop")
            await cluster.launch(broker)
            await cluster.ready(broker)
            await harness.healed(f"broker {broker} is back")
            await asyncio.sleep(SETTLED_SECONDS)
            back = take_gaps(harness, "start")
            done = tally(before, standings(await client.list_streams()))
            harness.faults["stop"] += 1
            harness.figures.counts["elections"] += done.elections
            harness.figures.counts["ISR changes"] += done.isr_changes
            harness.say(
                f"round {number + 1}: broker {broker} was restarted. Longest gaps at its stop: {stopped}; "
                f"at its start: {back}; {done.elections} elections, {done.isr_changes} ISR changes"
            )
    claim_no_errors(harness)
