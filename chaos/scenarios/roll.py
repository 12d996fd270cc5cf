"""A rolling restart of all brokers, as often as asked: no idempotent writer and no reader notices."""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.figures import standings, tally
from chaos.scenarios.clients import claim_no_errors, take_gaps
from chaos.stage import Stage

SETTLED_SECONDS: Final = 1.0
"""After a broker is back, so that a gap that begins late belongs to its restart."""


async def act(stage: Stage, rounds: int) -> None:
    cluster, client = stage.cluster, stage.client
    await stage.healed("every replica is in sync")
    take_gaps(stage, "calm")
    for number in range(rounds):
        for broker in cluster.brokers:
            before = standings(await client.list_streams())
            await cluster.stop(broker)
            await asyncio.sleep(SETTLED_SECONDS)
            stopped = take_gaps(stage, "stop")
            await cluster.launch(broker)
            await cluster.ready(broker)
            await stage.healed(f"broker {broker} is back")
            await asyncio.sleep(SETTLED_SECONDS)
            back = take_gaps(stage, "start")
            done = tally(before, standings(await client.list_streams()))
            stage.faults["stop"] += 1
            stage.figures.counts["elections"] += done.elections
            stage.figures.counts["ISR changes"] += done.isr_changes
            stage.say(
                f"round {number + 1}: broker {broker} was restarted; longest gaps at its stop {stopped}; "
                f"at its start {back}; {done.elections} elections, {done.isr_changes} ISR changes"
            )
    claim_no_errors(stage)
