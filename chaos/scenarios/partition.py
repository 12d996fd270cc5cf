"""A leader is cut off from both followers, with the controller on its side and on theirs.

Each broker leads a partition and follows in the others, so the two that are left are in the same moment the
leader and the follower who go on without one. Somebody asks the leader that is cut off, and nobody
else: it must acknowledge nothing, what it wrote all the same must be gone afterwards, and there must
have been something, or nothing was tried.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.cluster import Trouble
from chaos.figures import Place, standings, tally
from chaos.links import around
from chaos.scenarios.asker import Asker
from chaos.scenarios.clients import controller_of, preferred_lead, take_gaps
from chaos.stage import Stage

CUT_SECONDS: Final = 6.0
"""Three sessions."""

SETTLED_SECONDS: Final = 1.5
STREAM: Final = "orders"


async def act(stage: Stage, rounds: int) -> None:
    await stage.healed("every replica is in sync")
    take_gaps(stage, "calm")
    askers = []
    for number in range(rounds):
        for with_leader in (True, False):
            await preferred_lead(stage)
            await stage.healed("every replica is in sync")
            controller, _ = await controller_of(stage)
            place = await _led(stage, controller, with_leader)
            askers.append(await _isolate(stage, place, f"round {number + 1}", with_leader))
    survived = sum(asker.stored() for asker in askers)
    asked = sum(asker.asked for asker in askers)
    stage.figures.counts["records asked of leaders that were cut off"] = asked
    stage.claim(asked > 0, "nobody asked a leader that was cut off")
    stage.claim(not survived, f"{survived} records are there that only a leader that was cut off took")


async def _led(stage: Stage, controller: int, by_controller: bool) -> Place:
    """A partition that the controller leads, or another broker."""
    for place, standing in sorted(standings(await stage.client.list_streams()).items()):
        if place[0] == STREAM and (standing.leader == controller) == by_controller:
            return place
    raise Trouble(f"no partition of {STREAM} is led as it should be: the controller is {controller}")


async def _isolate(stage: Stage, place: Place, round_: str, with_leader: bool) -> Asker:
    client, links = stage.client, stage.cluster.links
    streams = await client.list_streams()
    before = standings(streams)
    leader = before[place].leader
    assert leader is not None
    stream_id = next(stream.stream_id for stream in streams if stream.name == STREAM)
    asker = Asker(stage.cluster.server(leader), STREAM, stream_id, place[1], stage.recording)
    take_gaps(stage, "between")
    cut = around(leader, stage.cluster.brokers)
    links.cut(cut)
    async with asyncio.timeout(CUT_SECONDS * 2):
        await asker.ask_for(CUT_SECONDS)
    alone = [
        one for one in await client.describe_replicas(STREAM)
        if one.partition == place[1] and one.broker_id == leader
    ]  # fmt: skip
    links.heal(cut)
    stage.faults["isolate"] += 1
    tail = alone[0].log_end_offset - alone[0].high_watermark
    await stage.healed(f"broker {leader} is back")
    await asyncio.sleep(SETTLED_SECONDS)
    side = "with the controller" if with_leader else "without the controller"
    gaps = take_gaps(stage, f"leader cut off {side}")
    done = tally(before, standings(await client.list_streams()))
    stage.figures.counts["elections"] += done.elections
    stage.figures.counts["ISR changes"] += done.isr_changes
    stage.figures.counts["records cut off again"] += tail
    stage.say(
        f"{round_}: broker {leader}, leader of {STREAM}/{place[1]}, was cut off {side}; it was asked "
        f"{asker.asked} times, acknowledged {asker.acknowledged}, and had written {tail} records in vain; "
        f"longest gaps {gaps}; {done.elections} elections, {done.isr_changes} ISR changes"
    )
    stage.claim(
        not asker.acknowledged, f"a leader that was cut off acknowledged {asker.acknowledged} records"
    )
    stage.claim(tail > 0, "a leader that was cut off wrote nothing in vain: nothing was tried")
    return asker
