"""Only the link between a leader and one follower is cut; the third broker hears both.

The leader takes the follower out of its ISR and goes on; nobody else has a reason to lead in its place,
except where one of the two is the controller: then the other one is fenced, by its session, once. A
partition that gets one leader after the other, or an ISR that breathes, would be flapping.
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
"""Of one partition while the link is cut."""

ISR_CHANGES_MAX: Final = 3
"""Of one partition, from the cut to its healing: out, back, and a proposal that was repeated."""


async def act(harness: Harness, rounds: int) -> None:
    client, links = harness.client, harness.cluster.links
    # Each of two brokers leads a partition that the other one follows: either is the leader of a pair.
    await harness.healed("every replica is in sync")
    take_gaps(harness, "calm")
    for number in range(rounds):
        for at_an_end in (True, False):
            await preferred_lead(harness)
            await harness.healed("every replica is in sync")
            controller, _ = await controller_of(harness)
            first, second = sorted(broker for broker in harness.cluster.brokers if broker != controller)
            pair = (controller, first) if at_an_end else (first, second)
            where = "at one end" if at_an_end else "between them"
            before = standings(await client.list_streams())
            take_gaps(harness, "between")
            links.cut(between(*pair))
            await asyncio.sleep(CUT_SECONDS)
            held = tally(before, standings(await client.list_streams()))
            links.heal(between(*pair))
            harness.faults["cut"] += 1
            await harness.healed("the two hear each other again")
            await asyncio.sleep(SETTLED_SECONDS)
            gaps = take_gaps(harness, f"cut, the controller {where}")
            done = tally(before, standings(await client.list_streams()))
            harness.figures.counts["elections"] += held.elections
            harness.figures.counts["ISR changes"] += done.isr_changes
            harness.say(
                f"round {number + 1}: brokers {pair[0]} and {pair[1]} did not hear each other for "
                f"{CUT_SECONDS:g} s, the controller {where}; longest gaps {gaps}; "
                f"{held.elections} elections and {held.isr_changes} ISR changes meanwhile, "
                f"{done.elections} and {done.isr_changes} until all was in sync again; of one partition "
                f"{done.elections_max} and {done.isr_changes_max} at most"
            )
            harness.claim(
                held.elections_max <= ELECTIONS_MAX,
                f"a cut link had a partition elect {held.elections_max} times",
            )
            harness.claim(
                done.isr_changes_max <= ISR_CHANGES_MAX,
                f"a cut link had an ISR change {done.isr_changes_max} times",
            )
