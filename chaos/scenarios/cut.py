"""Only the link between a leader and one follower is cut; the third broker reaches both.

The leader takes the follower out of its ISR and continues. No other broker may become the leader, with one
exception: if one of the two is the controller, the other one's session ends, and it is fenced once. A
partition with several elections, or an ISR that shrinks and grows repeatedly, would be flapping.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.figures import standings, tally
from chaos.harness import Harness
from chaos.links import between
from chaos.scenarios.steps import controller_of, preferred_lead, take_gaps

CUT_SECONDS: Final = 10.0
SETTLED_SECONDS: Final = 1.5

ELECTIONS_MAX: Final = 1
"""Elections of one partition while the link is cut."""

ISR_CHANGES_MAX: Final = 3
"""ISR changes of one partition from the cut until all is healed: out, back, and a repeated proposal."""


async def act(harness: Harness, rounds: int) -> None:
    client, links = harness.client, harness.cluster.links
    # Each of the two brokers leads a partition that the other one follows: both are the leader of a pair.
    await harness.healed("every replica is in sync")
    take_gaps(harness, "calm")
    for number in range(rounds):
        for at_an_end in (True, False):
            await preferred_lead(harness)
            await harness.healed("every replica is in sync")
            controller, _ = await controller_of(harness)
            first, second = sorted(broker for broker in harness.cluster.brokers if broker != controller)
            pair = (controller, first) if at_an_end else (first, second)
            where = "at one end of the link" if at_an_end else "between them"
            before = standings(await client.list_streams())
            take_gaps(harness, "between")
            links.cut(between(*pair))
            await asyncio.sleep(CUT_SECONDS)
            held = tally(before, standings(await client.list_streams()))
            links.heal(between(*pair))
            harness.faults["cut"] += 1
            await harness.healed("both brokers have recovered from the cut")
            await asyncio.sleep(SETTLED_SECONDS)
            gaps = take_gaps(harness, f"cut, the controller {where}")
            done = tally(before, standings(await client.list_streams()))
            harness.figures.counts["elections"] += held.elections
            harness.figures.counts["ISR changes"] += done.isr_changes
            harness.say(
                f"round {number + 1}: the link between brokers {pair[0]} and {pair[1]} was cut for "
                f"{CUT_SECONDS:g} s, with the controller {where}. Longest gaps: {gaps}. "
                f"During the cut: {held.elections} elections, {held.isr_changes} ISR changes; "
                f"until all was in sync again: {done.elections} and {done.isr_changes}, "
                f"of one partition at most {done.elections_max} and {done.isr_changes_max}"
            )
            harness.claim(
                held.elections_max <= ELECTIONS_MAX,
                f"A cut link may cost a partition {ELECTIONS_MAX} election; it cost {held.elections_max}.",
            )
            harness.claim(
                done.isr_changes_max <= ISR_CHANGES_MAX,
                f"A cut link may cost a partition {ISR_CHANGES_MAX} ISR changes; it cost "
                f"{done.isr_changes_max}.",
            )
