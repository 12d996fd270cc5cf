"""1 broker becomes 3, then 5, and the first two leave: a cluster whose every part was replaced, under load.

What is done is what an operator does by the command line: streams get copies on the new brokers, votes
move, the old brokers are drained, stopped and unregistered. No writer over gRPC, whether it could ask again
or not, and no reader is told of anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from chaos.figures import standings, tally
from chaos.harness import Harness
from chaos.load import WRITERS
from chaos.scenarios.steps import claim_no_errors, preferred_lead, take_gaps

BROKERS_MAX: Final = 5
COPIES: Final = 3
STEP_SECONDS: Final = 2.0
"""After each step, so that what it brings about belongs to it."""

LEAVING: Final = (0, 1)
"""Of the first three: nobody is left who was there when it all began, but one."""


async def act(harness: Harness, rounds: int) -> None:
    for _ in range(rounds):
        harness.claim(
            harness.cluster.brokers == (0,), "growth happens once: a cluster does not become young again"
        )
        take_gaps(harness, "calm")
        await _step(harness, "brokers 1 and 2 join", _joined(harness, 1, 2))
        await _step(harness, f"streams get {COPIES} copies", _copied(harness))
        await _step(harness, "leaders spread", lambda: preferred_lead(harness))
        await _step(harness, "brokers 3 and 4 join", _joined(harness, 3, 4))
        await _step(harness, "replicas spread over five", _spread(harness))
        await _step(harness, "leaders spread again", lambda: preferred_lead(harness))
        for new, old in ((3, 0), (4, 1)):
            await _step(harness, f"the vote of broker {old} goes to {new}", _vote_moved(harness, new, old))
        for broker in LEAVING:
            await _step(harness, f"broker {broker} is drained", _drained(harness, broker))
            await _step(harness, f"broker {broker} leaves", _left(harness, broker))
    harness.figures.counts["brokers at the end"] = len(harness.cluster.brokers)
    claim_no_errors(harness, [kind.name for kind in WRITERS])


Step = Callable[[], Awaitable[None]]


async def _step(harness: Harness, what: str, step: Step) -> None:
    before = standings(await harness.client.list_streams())
    told = sum(map(len, harness.recording.errors.values()))
    await step()
    await asyncio.sleep(STEP_SECONDS)
    done = tally(before, standings(await harness.client.list_streams()))
    gaps = take_gaps(harness, "a step")
    harness.faults["change of membership"] += 1
    harness.figures.counts["elections"] += done.elections
    harness.figures.counts["ISR changes"] += done.isr_changes
    errors = sum(map(len, harness.recording.errors.values())) - told
    harness.say(f"{what}: longest gaps {gaps}; {done.elections} elections, {errors} errors to clients")


def _joined(harness: Harness, *brokers: int) -> Step:
    async def step() -> None:
        for broker in brokers:
            await harness.cluster.join(broker)
        await harness.healed(f"brokers {brokers} are there, and vote if there are three")

    return step


def _copied(harness: Harness) -> Step:
    """Every partition on the first three brokers, each with another preferred leader."""

    async def step() -> None:
        brokers = harness.cluster.brokers[:COPIES]
        streams = await harness.client.list_streams()
        places = [(stream.name, one.partition) for stream in streams for one in stream.partitions]
        targets = {
            place: (*brokers[index % COPIES :], *brokers[: index % COPIES])
            for index, place in enumerate(places)
        }
        await harness.client.reassign(targets)
        await _settled(harness)
        factors = {
            stream.name: stream.config.replication_factor for stream in await harness.client.list_streams()
        }
        harness.claim(
            set(factors.values()) == {COPIES}, f"{COPIES} copies of each partition, and yet {factors}"
        )

    return step


def _spread(harness: Harness) -> Step:
    async def step() -> None:
        await harness.client.spread()
        await _settled(harness)

    return step


def _vote_moved(harness: Harness, new: int, old: int) -> Step:
    async def step() -> None:
        await harness.client.add_voter(new)
        await harness.client.remove_voter(old)

        async def lack() -> str | None:
            voters = (await harness.client.describe_cluster()).voters
            return None if new in voters and old not in voters and len(voters) == 3 else f"{voters} vote"

        await harness.until(lack, f"broker {new} votes in place of {old}")

    return step


def _drained(harness: Harness, broker: int) -> Step:
    async def step() -> None:
        async def lack() -> str | None:
            left = (await harness.client.drain(broker)).replicas_left
            return f"{left} replicas are left" if left else None

        await harness.until(lack, f"broker {broker} is empty")
        await _settled(harness)

    return step


def _left(harness: Harness, broker: int) -> Step:
    async def step() -> None:
        await harness.cluster.leave(broker)
        await harness.client.unregister_broker(broker)
        await harness.healed(f"broker {broker} is gone")

    return step


async def _settled(harness: Harness) -> None:
    async def lack() -> str | None:
        moving = await harness.client.list_reassignments()
        return f"{len(moving)} partitions move" if moving else None

    await harness.until(lack, "replicas have moved")
