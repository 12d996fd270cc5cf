"""A leader is cut off from both followers; sometimes it is the controller, sometimes a follower is.

Each broker leads a partition and follows in the others, so the two other brokers continue as leader and
follower of their own partitions. A direct client writes only to the leader that is cut off. This leader must
acknowledge nothing. It must write some records, or the test is void. None of them may be there afterwards.
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
    harness.figures.counts["records sent to leaders that were cut off"] = asked
    harness.claim(asked > 0, "No record was sent to a leader that was cut off, so nothing was tested.")
    harness.claim(
        not survived,
        f"Records that only a leader that was cut off had must be gone; readers got {survived} of them.",
    )


async def _led(harness: Harness, controller: int, by_controller: bool) -> Place:
    """A partition that the controller leads (`by_controller`), or that another broker leads."""
    for place, standing in sorted(standings(await harness.client.list_streams()).items()):
        if place[0] == STREAM and (standing.leader == controller) == by_controller:
            return place
    wanted = f"broker {controller}, the controller" if by_controller else f"another broker than {controller}"
    raise ClusterFailure(f"No partition of {STREAM} has the leader that the scenario needs: {wanted}.")


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
    await harness.healed(f"broker {leader} has recovered")
    await asyncio.sleep(SETTLED_SECONDS)
    side = "with the controller" if with_leader else "without the controller"
    gaps = take_gaps(harness, f"leader cut off {side}")
    done = tally(before, standings(await client.list_streams()))
    harness.figures.counts["elections"] += done.elections
    harness.figures.counts["ISR changes"] += done.isr_changes
    harness.figures.counts["records truncated"] += tail
    harness.say(
        f"{round_}: broker {leader}, leader of {STREAM}/{place[1]}, was cut off {side}. It got "
        f"{direct.asked} records, acknowledged {direct.acknowledged}, and wrote {tail} that it then "
        f"truncated. Longest gaps: {gaps}; {done.elections} elections, {done.isr_changes} ISR changes"
    )
    harness.claim(
        not direct.acknowledged,
        f"A leader that was cut off must acknowledge nothing; it acknowledged {direct.acknowledged} records.",
    )
    harness.claim(tail > 0, "A leader that was cut off wrote no record to truncate, so nothing was tested.")
    return direct
