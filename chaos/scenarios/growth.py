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
from chaos.load import WRITERS
from chaos.scenarios.clients import claim_no_errors, preferred_lead, take_gaps
from chaos.stage import Stage

BROKERS_MAX: Final = 5
COPIES: Final = 3
STEP_SECONDS: Final = 2.0
"""After each step, so that what it brings about belongs to it."""

LEAVING: Final = (0, 1)
"""Of the first three: nobody is left who was there when it all began, but one."""


async def act(stage: Stage, rounds: int) -> None:
    for _ in range(rounds):
        stage.claim(
            stage.cluster.brokers == (0,), "growth happens once: a cluster does not become young again"
        )
        take_gaps(stage, "calm")
        await _step(stage, "brokers 1 and 2 join", _joined(stage, 1, 2))
        await _step(stage, f"streams get {COPIES} copies", _copied(stage))
        await _step(stage, "leaders spread", lambda: preferred_lead(stage))
        await _step(stage, "brokers 3 and 4 join", _joined(stage, 3, 4))
        await _step(stage, "replicas spread over five", _spread(stage))
        await _step(stage, "leaders spread again", lambda: preferred_lead(stage))
        for new, old in ((3, 0), (4, 1)):
            await _step(stage, f"the vote of broker {old} goes to {new}", _vote_moved(stage, new, old))
        for broker in LEAVING:
            await _step(stage, f"broker {broker} is drained", _drained(stage, broker))
            await _step(stage, f"broker {broker} leaves", _left(stage, broker))
    stage.figures.counts["brokers at the end"] = len(stage.cluster.brokers)
    claim_no_errors(stage, [kind.name for kind in WRITERS])


Step = Callable[[], Awaitable[None]]


async def _step(stage: Stage, what: str, step: Step) -> None:
    before = standings(await stage.client.list_streams())
    told = sum(map(len, stage.recording.errors.values()))
    await step()
    await asyncio.sleep(STEP_SECONDS)
    done = tally(before, standings(await stage.client.list_streams()))
    gaps = take_gaps(stage, "a step")
    stage.faults["change of membership"] += 1
    stage.figures.counts["elections"] += done.elections
    stage.figures.counts["ISR changes"] += done.isr_changes
    errors = sum(map(len, stage.recording.errors.values())) - told
    stage.say(f"{what}: longest gaps {gaps}; {done.elections} elections, {errors} errors to clients")


def _joined(stage: Stage, *brokers: int) -> Step:
    async def step() -> None:
        for broker in brokers:
            await stage.cluster.join(broker)
        await stage.healed(f"brokers {brokers} are there, and vote if there are three")

    return step


def _copied(stage: Stage) -> Step:
    """Every partition on the first three brokers, each with another preferred leader."""

    async def step() -> None:
        brokers = stage.cluster.brokers[:COPIES]
        streams = await stage.client.list_streams()
        places = [(stream.name, one.partition) for stream in streams for one in stream.partitions]
        targets = {
            place: (*brokers[index % COPIES :], *brokers[: index % COPIES])
            for index, place in enumerate(places)
        }
        await stage.client.reassign(targets)
        await _settled(stage)
        factors = {
            stream.name: stream.config.replication_factor for stream in await stage.client.list_streams()
        }
        stage.claim(
            set(factors.values()) == {COPIES}, f"{COPIES} copies of each partition, and yet {factors}"
        )

    return step


def _spread(stage: Stage) -> Step:
    async def step() -> None:
        await stage.client.spread()
        await _settled(stage)

    return step


def _vote_moved(stage: Stage, new: int, old: int) -> Step:
    async def step() -> None:
        await stage.client.add_voter(new)
        await stage.client.remove_voter(old)

        async def lack() -> str | None:
            voters = (await stage.client.describe_cluster()).voters
            return None if new in voters and old not in voters and len(voters) == 3 else f"{voters} vote"

        await stage.until(lack, f"broker {new} votes in place of {old}")

    return step


def _drained(stage: Stage, broker: int) -> Step:
    async def step() -> None:
        async def lack() -> str | None:
            left = (await stage.client.drain(broker)).replicas_left
            return f"{left} replicas are left" if left else None

        await stage.until(lack, f"broker {broker} is empty")
        await _settled(stage)

    return step


def _left(stage: Stage, broker: int) -> Step:
    async def step() -> None:
        await stage.cluster.leave(broker)
        await stage.client.unregister_broker(broker)
        await stage.healed(f"broker {broker} is gone")

    return step


async def _settled(stage: Stage) -> None:
    async def lack() -> str | None:
        moving = await stage.client.list_reassignments()
        return f"{len(moving)} partitions move" if moving else None

    await stage.until(lack, "replicas have moved")
