"""One run: a cluster, load, faults by a plan, healing, and the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import tidelog
from chaos.cluster import Cluster, Trouble
from chaos.faults import Faults
from chaos.load import END_SECONDS_MAX, WRITERS, Sampler, StreamWriter, TailReader
from chaos.nats_load import Publisher
from chaos.plan import Kind, Step, schedule
from chaos.recording import Recording
from chaos.verdict import Verdict, compare_replicas, judge, keep_history, read_everything
from tidelog.errors import TidelogError

BROKERS: Final = 3
HEAL_SECONDS_MAX: Final = 90.0
"""From the last fault to every replica in sync; a broker that lost its disk copies everything."""

CALM_SECONDS: Final = 2.0
"""Before the first fault and after the last."""

LOOK_SECONDS: Final = 0.2
PAUSE_WORTH_SECONDS: Final = 1.0
"""A pause of acknowledgements that is worth a line."""

SEGMENT_BYTES: Final = 4 << 20
"""Small, so that a run sees many."""


@dataclass(frozen=True)
class StreamPlan:
    name: str
    partitions: int
    durability: str
    subject: str = ""
    """Recorded from NATS; the library's writers leave it alone."""


STREAMS: Final = (
    StreamPlan("orders", 3, "fsync"),
    StreamPlan("clicks", 2, "page-cache"),
    StreamPlan("events", 1, "fsync", "events.>"),
)


@dataclass(frozen=True)
class Wish:
    """What somebody asked for."""

    seed: int
    seconds: float
    kinds: Sequence[Kind]
    copies: int = 3
    plant: str = ""
    """The name of a planted bug."""
    streams: Sequence[StreamPlan] = field(default=STREAMS)


class Run:
    """See the module."""

    def __init__(self, wish: Wish, folder: Path, say: Callable[[str], None]) -> None:
        self._wish = wish
        self._folder = folder
        self._say_line = say
        self._rng = random.Random(wish.seed)
        self.recording = Recording()
        self.cluster = Cluster(folder, BROKERS, plant=wish.plant)
        self._faults = Faults(self.cluster, self._healed)
        self._begun = time.monotonic()
        self._writers: list[StreamWriter | Publisher] = []
        self._tails: list[TailReader] = []
        self._writing: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []

    def _say(self, text: str) -> None:
        self._say_line(f"[{time.monotonic() - self._begun:7.1f} s] {text}")

    async def play(self) -> Verdict:
        """Everything from the first process to the verdict; leaves no process."""
        self._say(f"seed {self._wish.seed}; {BROKERS} brokers and a NATS server start")
        try:
            await self.cluster.start()
            async with tidelog.connect(self.cluster.servers, retry_timeout_s=60) as self._client:
                await self._create_streams()
                return await self._under_load()
        finally:
            for task in (*self._writing, *self._reading):
                task.cancel()
            await asyncio.gather(*self._writing, *self._reading, return_exceptions=True)
            await self.cluster.close()
            keep_history(self.recording, self._folder / "history.jsonl")

    async def _create_streams(self) -> None:
        # Placement wants to know all brokers.
        await self._healed("all brokers are there")
        for stream in self._wish.streams:
            settings = tidelog.StreamSettings(segment_bytes=SEGMENT_BYTES)
            await self._client.create_stream(
                stream.name,
                partitions=stream.partitions,
                durability=stream.durability,
                subject=stream.subject or None,
                replication_factor=self._wish.copies,
                settings=settings,
            )

    async def _under_load(self) -> Verdict:
        self._start_load()
        await asyncio.sleep(CALM_SECONDS)
        try:
            await self._do_harm()
            await self._healed("every replica is in sync after the last fault")
            await asyncio.sleep(CALM_SECONDS)
        except Trouble as trouble:
            # The rest of the run would wait for what does not come; what is there is judged.
            self._say(f"trouble: {trouble}")
            self.recording.trouble(str(trouble))
        self._say("the load ends")
        await self._stop_load()
        return await self._judged()

    def _start_load(self) -> None:
        create, recording, rng = asyncio.create_task, self.recording, self._rng
        for stream in self._wish.streams:
            if stream.subject:
                subject = stream.subject.replace(">", "made")
                self._writers.append(
                    Publisher(self.cluster.nats, stream.name, subject, recording, random.Random(rng.random()))
                )
            else:
                self._writers += [
                    StreamWriter(
                        self._client, stream.name, stream.partitions, kind, recording,
                        random.Random(rng.random()),
                    )
                    for kind in WRITERS
                ]  # fmt: skip
            tail = TailReader(self._client, stream.name, stream.partitions, recording)
            sampler = Sampler(self._client, tail, stream.name, recording, random.Random(rng.random()))
            self._tails.append(tail)
            self._reading += [create(tail.run()), create(sampler.run())]
        self._writing = [create(writer.run()) for writer in self._writers]

    async def _do_harm(self) -> None:
        steps = schedule(self._rng, self.cluster.brokers, self._wish.kinds)
        end = time.monotonic() + self._wish.seconds
        while self._wish.kinds and time.monotonic() < end:
            step = next(steps)
            if step.healed_first:
                await self._healed("every replica is in sync")
            await self._perform(step)
            await asyncio.sleep(step.pause_seconds)
            await self._revive()
            pause = self.recording.take_pause()
            if pause.seconds > PAUSE_WORTH_SECONDS:
                self._say(f"nothing was acknowledged for {pause}")
        if not self._wish.kinds:
            await asyncio.sleep(self._wish.seconds)

    async def _perform(self, step: Step) -> None:
        for fault in step.faults:
            self._say(str(fault))
        # Each has an end of its own, whatever becomes of the other.
        performed = (self._faults.perform(fault) for fault in step.faults)
        for outcome in await asyncio.gather(*performed, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _revive(self) -> None:
        await self.cluster.revive()
        for sentence in self.cluster.ended:
            self._say(f"trouble: {sentence}")
            self.recording.trouble(sentence)
        self.cluster.ended.clear()

    async def _healed(self, what: str) -> None:
        """Waits until all brokers are there and every replica is in sync; raises `Trouble`."""
        deadline = time.monotonic() + HEAL_SECONDS_MAX
        while (lack := await self._lack()) is not None:
            await self._revive()
            if time.monotonic() > deadline:
                raise Trouble(f"not within {HEAL_SECONDS_MAX:g} s: {what}: {lack}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _lack(self) -> str | None:
        """What is not as it should be; None: nothing."""
        try:
            cluster = await self._client.describe_cluster()
            streams = await self._client.list_streams()
        except TidelogError as error:
            return str(error)
        active = [broker.broker_id for broker in cluster.brokers if broker.state == "active"]
        if tuple(active) != self.cluster.brokers:
            return f"brokers {active} are active"
        if tuple(cluster.voters) != self.cluster.brokers:
            return f"brokers {list(cluster.voters)} vote"
        for stream in streams:
            for placed in stream.partitions:
                if placed.leader is None or set(placed.isr) != set(placed.replicas):
                    return f"{stream.name}/{placed.partition}: leader {placed.leader}, in sync {placed.isr}"
        return None

    async def _stop_load(self) -> None:
        for writer in self._writers:
            writer.stopping.set()
        await asyncio.gather(*self._writing)
        try:
            ends = {stream.name: await self._client.offsets(stream.name) for stream in self._wish.streams}
        except TidelogError as error:
            self.recording.trouble(f"nobody knows how far the streams are committed: {error}")
            ends = {stream.name: {} for stream in self._wish.streams}
        deadline = time.monotonic() + END_SECONDS_MAX
        for stream, tail in zip(self._wish.streams, self._tails, strict=True):
            while any(tail.positions[one].offset < end for one, (_, end) in ends[stream.name].items()):
                if time.monotonic() > deadline:
                    self.recording.trouble(f"who followed {stream.name} did not come to its end")
                    break
                await asyncio.sleep(LOOK_SECONDS)
        for task in self._reading:
            task.cancel()
        for outcome in await asyncio.gather(*self._reading, return_exceptions=True):
            if isinstance(outcome, Exception):
                self.recording.trouble(f"a reader failed: {outcome!r}")

    async def _judged(self) -> Verdict:
        names = [stream.name for stream in self._wish.streams]
        try:
            await read_everything(self._client, self.recording, names)
        except TidelogError as error:
            self.recording.trouble(f"the last readers failed: {type(error).__name__}: {error}")
        self._say("all is read; the replicas are compared")
        compared, problems = await compare_replicas(self.cluster.servers[0])
        reports = await asyncio.to_thread(judge, self.recording)
        return Verdict(
            time.monotonic() - self._begun,
            Counter({str(kind): count for kind, count in self._faults.done.items()}),
            self.recording.operations,
            self.recording.longest_pause,
            reports,
            self.recording.troubles,
            compared,
            problems,
        )
