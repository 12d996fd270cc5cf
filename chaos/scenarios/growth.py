"""A cluster grows under load from 1 broker to 3 and to 5, and then the first two brokers leave.

The steps are those of an administrator on the command line: streams get replicas on the new brokers, votes
move, the old brokers are drained, stopped and unregistered. No writer over gRPC, idempotent or not, and no
reader may get an error.
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
"""The load continues for this time after each step, so that late effects count for the step."""

LEAVING: Final = (0, 1)
"""Brokers of the beginning that leave; of the first three, one stays."""


async def act(harness: Harness, rounds: int) -> None:
    for _ in range(rounds):
        harness.claim(
            harness.cluster.brokers == (0,),
            "The scenario growth starts with one broker, so it has one round.",
        )
        take_gaps(harness, "calm")
        await _step(harness, "brokers 1 and 2 join", _joined(harness, 1, 2))
        await _step(harness, f"streams get {COPIES} copies", _copied(harness))
        await _step(harness, "leaders spread", lambda: preferred_lead(harness))
        await _step(harness, "brokers 3 and 4 join", _joined(harness, 3, 4))
        await _step(harness, "replicas spread over five brokers", _spread(harness))
        await _step(harness, "leaders spread again", lambda: preferred_lead(harness))
        for new, old in ((3, 0), (4, 1)):
            await _step(harness, f"the vote of broker {old} moves to {new}", _vote_moved(harness, new, old))
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
    harness.say(f"{what}. Longest gaps: {gaps}; {done.elections} elections, {errors} errors of clients")


def _joined(harness: Harness, *brokers: int) -> Step:
    async def step() -> None:
        for broker in brokers:
            await harness.cluster.join(broker)
        names = " and ".join(str(broker) for broker in brokers)
        await harness.healed(f"brokers {names} are active")

    return step


def _copied(harness: Harness) -> Step:
    """Puts every partition on the first three brokers, with preferred leaders in turn."""

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
            set(factors.values()) == {COPIES},
            f"Each partition has {COPIES} replicas, and the replication factors are "
            f"{', '.join(f'{name} {factor}' for name, factor in factors.items())}.",
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
            moved = new in voters and old not in voters and len(voters) == 3
            return None if moved else f"voters are {list(voters)}"

        await harness.until(lack, f"broker {new} votes in place of {old}")

    return step


def _drained(harness: Harness, broker: int) -> Step:
    async def step() -> None:
        async def lack() -> str | None:
            left = (await harness.client.drain(broker)).replicas_left
            return f"it has {left} {'replica' if left == 1 else 'replicas'}" if left else None

        await harness.until(lack, f"broker {broker} has no replicas")
        await _settled(harness)

    return step


def _left(harness: Harness, broker: int) -> Step:
    async def step() -> None:
        await harness.cluster.leave(broker)
        await harness.client.unregister_broker(broker)
        await harness.healed(f"broker {broker} has left")

    return step


async def _settled(harness: Harness) -> None:
    async def lack() -> str | None:
        moving = await harness.client.list_reassignments()
        count = "1 partition is" if len(moving) == 1 else f"{len(moving)} partitions are"
        return f"{count} still moving" if moving else None

    await harness.until(lack, "all replicas have moved")
