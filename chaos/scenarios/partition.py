"""A leader is cut off from both followers, with the controller on its side and on theirs.

Each broker leads a partition and follows in the others, so the two that are left are in the same moment the
leader and the follower who go on without one. Somebody asks the leader that is cut off, and nobody
else: it must acknowledge nothing, what it wrote all the same must be gone afterwards, and there must
have been something, or nothing was tried.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.cluster import ClusterFailure
from chaos.figures import Place, standings, tally
from chaos.harness import Harness
from chaos.links import around
from chaos.scenarios.direct_client import DirectClient
from chaos.scenarios.steps import controller_of, preferred_lead, take_gaps

CUT_SECONDS: Final = 6.0
"""Three sessions."""

SETTLED_SECONDS: Final = 1.5
STREAM: Final = "orders"


async def act(harness: Harness, rounds: int) -> None:
    await harness.healed("every replica is in sync")
    take_gaps(harness, "calm")
    clients = []
    for number in range(rounds):
        for with_leader in (True, False):
            await preferred_lead(harness)
            await harness.healed("every replica is in sync")
            controller, _ = await controller_of(harness)
            place = await _led(harness, controller, with_leader)
            clients.append(await _isolate(harness, place, f"round {number + 1}", with_leader))
    survived = sum(client.stored() for client in clients)
    asked = sum(client.asked for client in clients)
    harness.figures.counts["records asked of leaders that were cut off"] = asked
    harness.claim(asked > 0, "nobody asked a leader that was cut off")
    harness.claim(not survived, f"{survived} records are there that only a leader that was cut off took")


async def _led(harness: Harness, controller: int, by_controller: bool) -> Place:
    """A partition that the controller leads, or another broker."""
    for place, standing in sorted(standings(await harness.client.list_streams()).items()):
        if place[0] == STREAM and (standing.leader == controller) == by_controller:
            return place
    raise ClusterFailure(f"no partition of {STREAM} is led as it should be: the controller is {controller}")


async def _isolate(harness: Harness, place: Place, round_: str, with_leader: bool) -> DirectClient:
    client, links = harness.client, harness.cluster.links
    streams = await client.list_streams()
    before = standings(streams)
    leader = before[place].leader
    assert leader is not None
    stream_id = next(stream.stream_id for stream in streams if stream.name == STREAM)
    direct = DirectClient(harness.cluster.server(leader), STREAM, stream_id, place[1], harness.recording)
    take_gaps(harness, "between")
    cut = around(leader, harness.cluster.brokers)
    links.cut(cut)
    async with asyncio.timeout(CUT_SECONDS * 2):
        await direct.send_for(CUT_SECONDS)
    alone = [
        one for one in await client.describe_replicas(STREAM)
        if one.partition == place[1] and one.broker_id == leader
    ]  # fmt: skip
    links.heal(cut)
    harness.faults["isolate"] += 1
    tail = alone[0].log_end_offset - alone[0].high_watermark
    await harness.healed(f"broker {leader} is back")
    await asyncio.sleep(SETTLED_SECONDS)
    side = "with the controller" if with_leader else "without the controller"
    gaps = take_gaps(harness, f"leader cut off {side}")
    done = tally(before, standings(await client.list_streams()))
    harness.figures.counts["elections"] += done.elections
    harness.figures.counts["ISR changes"] += done.isr_changes
    harness.figures.counts["records cut off again"] += tail
    harness.say(
        f"{round_}: broker {leader}, leader of {STREAM}/{place[1]}, was cut off {side}; it was asked "
        f"{direct.asked} times, acknowledged {direct.acknowledged}, and had written {tail} records in vain; "
        f"longest gaps {gaps}; {done.elections} elections, {done.isr_changes} ISR changes"
    )
    harness.claim(
        not direct.acknowledged, f"a leader that was cut off acknowledged {direct.acknowledged} records"
    )
    harness.claim(tail > 0, "a leader that was cut off wrote nothing in vain: nothing was tried")
    return direct
