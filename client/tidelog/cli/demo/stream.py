"""The step of the demo that publishes metrics as plain NATS messages and reads them back as records."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import tidelog
from tidelog.cli.errors import fail
from tidelog.cli.local.processes import Signals
from tidelog.cli.local.waiting import holds_within_async
from tidelog.model import Record
from tidelog.wording import count_of

if TYPE_CHECKING:
    from tidelog.cli.demo.host_metrics import Message

T = TypeVar("T")

SAMPLE_SECONDS = 0.25
SHOWN_MAX = 8
PLAIN_LINE_SECONDS = 1.0
"""Without a terminal, one record is shown in this time."""

CATCH_UP_SECONDS_MAX = 15.0


@dataclass(slots=True)
class Recorded:
    """What was published and what was read back."""

    published: int = 0
    records: int = 0
    bytes: int = 0
    """The size of one copy of the log on disk."""
    shown: deque[Text] = field(default_factory=lambda: deque(maxlen=SHOWN_MAX))


def run_async(signals: Signals, work: Callable[[], Awaitable[T]]) -> T:
    """Runs a coroutine; a stop signal cancels it and raises KeyboardInterrupt.

    The signal is never an exception while the event loop exists: an exception while the loop is made or
    closed would leave it open.
    """
    stopped = False
    running: asyncio.Task[T] | None = None

    def cancel() -> None:
        nonlocal stopped
        stopped = True
        if running is not None and not running.done():
            running.get_loop().call_soon_threadsafe(running.cancel)

    async def main() -> T:
        nonlocal running
        running = asyncio.current_task()
        if stopped:
            raise asyncio.CancelledError
        return await work()

    with signals.cancelling(cancel):
        try:
            result = asyncio.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    if stopped:
        raise KeyboardInterrupt
    return result


async def publish_and_tail(
    server: str, nats_url: str, stream: str, subject: str, seconds: float, screen: Console
) -> Recorded:
    """Creates the stream, publishes for some seconds, and returns when every message was read back."""
    recorded = Recorded()
    async with tidelog.connect(server) as client:
        await client.create_stream(stream, subject=subject)
        tail = asyncio.create_task(_tail(client, stream, recorded, screen))
        try:
            await _publish(nats_url, seconds, recorded)
            await _all_recorded(tail, recorded)
        finally:
            tail.cancel()
            await asyncio.gather(tail, return_exceptions=True)
        replicas = await client.describe_replicas(stream)
        # The size of one replica of each partition.
        recorded.bytes = sum(replica.bytes for replica in replicas if replica.leader)
    return recorded


async def _publish(nats_url: str, seconds: float, recorded: Recorded) -> None:
    # These packages are not part of a plain installation, which is enough for all other commands.
    import nats
    from tidelog.cli.demo.host_metrics import Sampler, host_token

    host, loop = host_token(), asyncio.get_running_loop()
    sampler = await asyncio.to_thread(Sampler)
    publisher = await nats.connect(nats_url, name="tidelog demo: metrics of this machine")
    try:
        begun = loop.time()
        ticks = 0
        while loop.time() - begun < seconds:
            ticks += 1
            await asyncio.sleep(max(0.0, begun + ticks * SAMPLE_SECONDS - loop.time()))
            for message in await asyncio.to_thread(sampler.sample):
                await publisher.publish(f"host.{host}.{message.kind}", _encoded(message))
                recorded.published += 1
            await publisher.flush()
    finally:
        await publisher.close()


def _encoded(message: Message) -> bytes:
    return json.dumps(message.body, separators=(",", ":")).encode()


async def _all_recorded(tail: asyncio.Task[None], recorded: Recorded) -> None:
    def all_came_back() -> bool:
        if tail.done():
            tail.result()
        return recorded.records >= recorded.published

    if not await holds_within_async(all_came_back, CATCH_UP_SECONDS_MAX, pause=0.01):
        fail(
            f"only {recorded.records} of {recorded.published} messages were recorded "
            f"within {CATCH_UP_SECONDS_MAX:g} s"
        )


async def _tail(client: tidelog.Client, stream: str, recorded: Recorded, screen: Console) -> None:
    """Shows the newest records: on a terminal as a list, elsewhere one line now and then."""
    if not screen.is_terminal:
        last = 0.0
        async for record in client.reader(stream):
            recorded.records += 1
            now = asyncio.get_running_loop().time()
            if now - last >= PLAIN_LINE_SECONDS:
                last = now
                screen.print(_line(record))
        return
    with Live(console=screen, refresh_per_second=10, transient=False) as live:
        async for record in client.reader(stream):
            recorded.records += 1
            recorded.shown.append(_line(record))
            live.update(
                Group(*recorded.shown, Text(f"   {count_of(recorded.records, 'record')}", style="bold"))
            )


def _line(record: Record) -> Text:
    value = (record.value or b"").decode(errors="replace")
    return Text.assemble(
        f"   {record.partition}@{record.offset:<6}",
        (f"{record.subject}  ", "cyan"),
        value,
        no_wrap=True,
        overflow="ellipsis",
    )
