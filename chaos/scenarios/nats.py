"""The leader of a recorded subject is killed, while publishers wait for acknowledgements.

They repeat what is not acknowledged under its `Nats-Msg-Id`: nothing acknowledged may be lost, and
nothing stored twice, which is the verdict's to say.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.cluster import Trouble
from chaos.figures import standings, tally
from chaos.nats_load import PUBLISHER
from chaos.scenarios.clients import take_gaps
from chaos.stage import Stage

PUBLISHERS: Final = 6
DOWN_SECONDS: Final = 1.5
SETTLED_SECONDS: Final = 1.0


async def act(stage: Stage, rounds: int) -> None:
    cluster, client = stage.cluster, stage.client
    recorded = [stream.name for stream in stage.streams if stream.subject]
    await stage.healed("every replica is in sync")
    take_gaps(stage, "calm")
    for number in range(rounds):
        streams = await client.list_streams()
        before = standings(streams)
        leader = before[recorded[0], 0].leader
        if leader is None:
            raise Trouble(f"every replica is in sync, and nobody leads {recorded[0]}/0")
        await cluster.kill(leader)
        stage.faults["kill"] += 1
        await asyncio.sleep(DOWN_SECONDS)
        await cluster.launch(leader)
        await stage.healed(f"broker {leader} is back")
        await asyncio.sleep(SETTLED_SECONDS)
        gaps = take_gaps(stage, "kill")
        done = tally(before, standings(await client.list_streams()))
        stage.figures.counts["elections"] += done.elections
        stage.say(f"kill {number + 1}: broker {leader} led; longest gaps {gaps}; {done.elections} elections")
    stage.figures.counts["messages repeated"] = len(stage.recording.errors.get(PUBLISHER, []))
