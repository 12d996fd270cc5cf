"""The step of the demo that kills a broker: it shows what a producer notices, and that nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tidelog
from tidelog.cli.errors import fail
from tidelog.cli.local.waiting import holds_within_async
from tidelog.wording import listed

BEFORE_SECONDS = 1.0
"""How long records are written before the broker is killed."""

AFTER_SECONDS = 1.0
"""How long records are written after the longest pause."""

BETWEEN_SECONDS = 0.002
"""The time between a receipt and the next record."""

FAILOVER_SECONDS_MAX = 30.0
IN_SYNC_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Failover:
    """What a producer saw while the leader was killed."""

    killed: int
    """The broker that led."""
    leader: int
    """The broker that leads now."""
    acknowledged: int
    """How many records were acknowledged."""
    lost: int
    """How many of these records are not at the offset of their receipt."""
    stored: int
    """Records in the stream. More than were acknowledged would mean duplicates."""
    pause_seconds: float
    """The longest time between two receipts."""


async def kill_leader_under_load(
    servers: Sequence[str], stream: str, kill: Callable[[int], None]
) -> Failover:
    """Writes records, each when the one before is committed, and kills the leader meanwhile."""
    async with tidelog.connect(servers) as client:
        await client.create_stream(stream)
        places: dict[int, bytes] = {}
        async with client.producer(stream) as producer:
            pause, killed = 0.0, None
            begun = last = time.perf_counter()
            until = begun + BEFORE_SECONDS
            while True:
                value = b"order %d" % len(places)
                places[(await producer.send(value)).offset] = value
                now = time.perf_counter()
                if killed is not None and now - last > pause:
                    # Writing goes on for a while after the longest pause, which is the pause to report.
                    pause, until = now - last, now + AFTER_SECONDS
                last = now
                if now > until:
                    if killed is not None:
                        break
                    killed = await _leader(client, stream)
                    kill(killed)
                    until = now + FAILOVER_SECONDS_MAX
                await asyncio.sleep(BETWEEN_SECONDS)
        stored = {record.offset: record.value async for record in client.reader(stream, follow=False)}
        leader = await _leader(client, stream)
    lost = sum(stored.get(offset) != value for offset, value in places.items())
    return Failover(killed, leader, len(places), lost, len(stored), pause)


async def _leader(client: tidelog.Client, stream: str) -> int:
    leader = (await client.describe_stream(stream)).partitions[0].leader
    if leader is None:
        fail(f"stream {stream} has no leader")
    return leader


async def wait_in_sync(servers: Sequence[str], stream: str) -> None:
    """Returns when every replica of a stream is in sync; ends the command if that takes too long."""
    async with tidelog.connect(servers) as client:
        isr: list[int] = []

        async def all_in_sync() -> bool:
            nonlocal isr
            placed = (await client.describe_stream(stream)).partitions[0]
            isr = list(placed.isr)
            return set(isr) == set(placed.replicas)

        if not await holds_within_async(all_in_sync, IN_SYNC_SECONDS_MAX, pause=0.05):
            in_sync = listed(isr)
            fail(f"not all replicas are in sync after {IN_SYNC_SECONDS_MAX:g} s, only broker {in_sync}")
