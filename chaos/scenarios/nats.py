"""The leader of a recorded subject is killed while publishers wait for acknowledgements.

Publishers repeat a message without an acknowledgement under its `Nats-Msg-Id`. The verdict finds a message
that was acknowledged and lost, or stored twice.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.cluster import ClusterFailure
from chaos.figures import standings, tally
from chaos.harness import Harness
from chaos.nats_load import PUBLISHER
from chaos.scenarios.steps import take_gaps

PUBLISHERS: Final = 6
DOWN_SECONDS: Final = 1.5
SETTLED_SECONDS: Final = 1.0


async def act(harness: Harness, rounds: int) -> None:
    cluster, client = harness.cluster, harness.client
    recorded = [stream.name for stream in harness.streams if stream.subject]
    await harness.healed("every replica is in sync")
    take_gaps(harness, "calm")
    for number in range(rounds):
        streams = await client.list_streams()
        before = standings(streams)
        leader = before[recorded[0], 0].leader
        if leader is None:
            raise ClusterFailure(f"Every replica is in sync, and {recorded[0]}/0 has no leader.")
        await cluster.kill(leader)
        harness.faults["kill"] += 1
        await asyncio.sleep(DOWN_SECONDS)
        await cluster.launch(leader)
        await harness.healed(f"broker {leader} is back")
        await asyncio.sleep(SETTLED_SECONDS)
        gaps = take_gaps(harness, "kill")
        done = tally(before, standings(await client.list_streams()))
        harness.figures.counts["elections"] += done.elections
        harness.say(
            f"kill {number + 1}: the leader was broker {leader}. Longest gaps: {gaps}; "
            f"{done.elections} elections"
        )
    harness.figures.counts["messages repeated"] = len(harness.recording.errors.get(PUBLISHER, []))
