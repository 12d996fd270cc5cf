"""The common part of all runs: starts the cluster and the load, waits until all is healed, gives the verdict.

Between start and verdict `run` injects faults by chance, and `scenarios` one event repeatedly.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import tidelog
from chaos.clocks import find_faketime
from chaos.cluster import HOST, Cluster, ClusterFailure
from chaos.figures import Figures
from chaos.load import END_SECONDS_MAX, Sampler, StreamWriter, TailReader
from chaos.nats_load import Publisher
from chaos.recording import Recording
from chaos.setup import Setup, StreamPlan
from chaos.trust import ADMINISTRATOR, Trust
from chaos.verdict import HISTORY, Verdict, compare_replicas, judge, keep_history, read_everything
from tidelog.cli.local.waiting import holds_within_async
from tidelog.errors import TidelogError

HEAL_SECONDS_MAX: Final = 90.0
"""From a fault until every replica is in sync. A broker that lost its disk copies everything."""

CALM_SECONDS: Final = 2.0
"""The load without faults, before the first fault and after the last."""

LOOK_SECONDS: Final = 0.2
OWN_LOOK_SECONDS: Final = 0.05
OWN_PAUSE_WORTH_SECONDS: Final = 0.3
"""A pause of this process is printed from this length on: more than half of the silence after which brokers
report a peer (`peer_silence_max`)."""

SEGMENT_BYTES: Final = 4 << 20
"""Small, so that a run has many segments."""

RETENTION_MS: Final = 86_400_000
"""One day: no record of a run becomes that old. A broker that believes a wrong clock would delete records."""

VOTERS: Final = 3
"""The brokers' setting `voters`, by default."""


class Harness:
    """A cluster under load, from its start to the verdict."""

    def __init__(
        self, setup: Setup, folder: Path, say: Callable[[str], None], *, seed: int, plant: str = ""
    ) -> None:
        """`say` prints a line of progress. `plant`: the name of a bug for every broker; empty: none."""
        self._setup = setup
        self._folder = folder
        self._say_line = say
        self._seed = seed
        self.rng = random.Random(seed)
        self.recording = Recording()
        self.figures = Figures()
        self.faults: Counter[str] = Counter()
        """How often each kind of fault was injected."""
        self.trust = Trust(folder / "tls", setup.brokers_max, HOST) if setup.tls else None
        """None: without TLS and authentication."""
        self.cluster = Cluster(
            folder,
            setup.brokers_max,
            begin=setup.brokers,
            plant=plant,
            faketime=find_faketime(),
            trust=self.trust,
        )
        self._begun = time.monotonic()
        self._writers: list[StreamWriter | Publisher] = []
        self._tails: list[TailReader] = []
        self._writing: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []

    @property
    def streams(self) -> Sequence[StreamPlan]:
        return self._setup.streams

    def say(self, text: str) -> None:
        self._say_line(f"[{time.monotonic() - self._begun:7.1f} s] {text}")

    def claim(self, true: bool, sentence: str) -> None:
        """A scenario's own check. It is an anomaly if `true` is false."""
        if not true:
            self.say(f"failure: {sentence}")
            self.recording.failed(sentence)

    async def play(self, act: Callable[[], Awaitable[None]]) -> Verdict:
        """Runs from the first process to the verdict, with `act` under load. Leaves no process."""
        brokers = "1 broker" if self._setup.brokers == 1 else f"{self._setup.brokers} brokers"
        self.say(f"starting {brokers} and a NATS server; seed {self._seed}")
        try:
            await self.cluster.start()
            async with self._connected_as_admin() as self.admin:
                if self.trust is not None:
                    await self.trust.begin(self.admin)
                async with self._connected() as self.client:
                    await self._create_streams()
                    return await self._under_load(act)
        finally:
            for task in (*self._writing, *self._reading):
                task.cancel()
            await asyncio.gather(*self._writing, *self._reading, return_exceptions=True)
            await self.cluster.close()
            keep_history(self.recording, self._folder / HISTORY)

    def _connected_as_admin(self) -> tidelog.Client:
        tls = None if self.trust is None else self.trust.tls(ADMINISTRATOR)
        return tidelog.connect(self.cluster.servers, retry_timeout_s=60, tls=tls)

    def _connected(self) -> tidelog.Client:
        """As the clients that write and read."""
        if self.trust is None:
            return self._connected_as_admin()
        return tidelog.connect(
            self.cluster.servers, retry_timeout_s=60, tls=self.trust.tls(), token_file=self.trust.token
        )

    async def _create_streams(self) -> None:
        # Placement needs all brokers.
        await self.healed("all brokers are registered")
        for stream in self.streams:
            settings = tidelog.StreamSettings(segment_bytes=SEGMENT_BYTES)
            await self.client.create_stream(
                stream.name,
                partitions=stream.partitions,
                durability=stream.durability,
                subject=stream.subject or None,
                replication_factor=self._setup.copies,
                retention=tidelog.Retention(age_ms=RETENTION_MS),
                settings=settings,
            )

    async def _under_load(self, act: Callable[[], Awaitable[None]]) -> Verdict:
        self._start_load()
        await asyncio.sleep(CALM_SECONDS)
        try:
            await act()
            await self.healed("every replica is in sync at the end")
            await asyncio.sleep(CALM_SECONDS)
        except ClusterFailure as failure:
            # The rest of the run would only wait. The verdict is about the run so far.
            self.say(f"failure: {failure}")
            self.recording.failed(str(failure))
        self.say("ending the load")
        await self._stop_load()
        return await self._judged()

    def _start_load(self) -> None:
        create, recording, rng = asyncio.create_task, self.recording, self.rng
        for stream in self.streams:
            if stream.subject:
                subject = stream.subject.replace(">", "made")
                self._writers += [
                    Publisher(
                        self.cluster.nats, stream.name, subject, recording, random.Random(rng.random()),
                        answer_seconds=self._setup.answer_seconds,
                    )
                    for _ in range(self._setup.publishers)
                ]  # fmt: skip
            else:
                self._writers += [
                    StreamWriter(
                        self.client, stream.name, stream.partitions, kind, recording,
                        random.Random(rng.random()),
                    )
                    for kind in self._setup.writers
                ]  # fmt: skip
            tail = TailReader(self.client, stream.name, stream.partitions, recording)
            sampler = Sampler(self.client, tail, stream.name, recording, random.Random(rng.random()))
            self._tails.append(tail)
            self._reading += [create(tail.run()), create(sampler.run())]
        self._writing = [create(writer.run()) for writer in self._writers]
        self._reading.append(create(self._watch_itself()))

    async def _watch_itself(self) -> None:
        """Notes pauses of this process. The network between the brokers runs in it, and pauses with it."""
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            await asyncio.sleep(OWN_LOOK_SECONDS)
            late = loop.time() - began_at - OWN_LOOK_SECONDS
            if late > OWN_PAUSE_WORTH_SECONDS:
                self.say(f"this process paused for {late:.2f} s, and with it the network between the brokers")
                self.figures.gap("pause of this process", late)

    async def revive(self) -> None:
        """Starts brokers again that ended without a fault. Each such end is an anomaly."""
        await self.cluster.revive()
        for sentence in self.cluster.ended:
            self.say(f"failure: {sentence}")
            self.recording.failed(sentence)
        self.cluster.ended.clear()

    async def healed(self, what: str) -> None:
        """Waits until all brokers are active and every replica is in sync. Raises `ClusterFailure`.

        `what` is what the caller waits for, as a sentence without a full stop.
        """
        await self.until(self._lack, what)

    async def until(self, lack: Callable[[], Awaitable[str | None]], what: str) -> None:
        """Waits until `lack` returns None; it returns what is missing. Raises `ClusterFailure`."""
        lacking: str | None = None

        async def nothing_lacks() -> bool:
            nonlocal lacking
            lacking = await lack()
            if lacking is None:
                return True
            await self.revive()
            return False

        if not await holds_within_async(nothing_lacks, HEAL_SECONDS_MAX, pause=LOOK_SECONDS):
            raise ClusterFailure(f"After {HEAL_SECONDS_MAX:g} s it is not true that {what}: {lacking}")

    async def _lack(self) -> str | None:
        """What the cluster lacks to be healthy; None: nothing."""
        members = self.cluster.brokers
        try:
            cluster = await self.client.describe_cluster()
            streams = await self.client.list_streams()
        except TidelogError as error:
            return str(error)
        active = [broker.broker_id for broker in cluster.brokers if broker.state == "active"]
        if tuple(active) != members:
            return f"active brokers are {active}, members are {list(members)}"
        if len(cluster.voters) != (VOTERS if len(members) >= VOTERS else 1):
            return f"voters are {list(cluster.voters)}"
        for stream in streams:
            for placed in stream.partitions:
                if placed.leader is None or set(placed.isr) != set(placed.replicas):
                    return (
                        f"{stream.name}/{placed.partition} has leader {placed.leader}, replicas "
                        f"{list(placed.replicas)} and ISR {list(placed.isr)}"
                    )
        return None

    async def _stop_load(self) -> None:
        for writer in self._writers:
            writer.stopping.set()
        await asyncio.gather(*self._writing)
        try:
            ends = {stream.name: await self.client.offsets(stream.name) for stream in self.streams}
        except TidelogError as error:
            self.recording.failed(f"The end offsets of the streams are not known: {error}")
            ends = {stream.name: {} for stream in self.streams}
        deadline = time.monotonic() + END_SECONDS_MAX
        for stream, tail in zip(self.streams, self._tails, strict=True):
            while any(tail.positions[one].offset < end for one, (_, end) in ends[stream.name].items()):
                if time.monotonic() > deadline:
                    self.recording.failed(
                        f"The reader that follows {stream.name} did not reach its end within "
                        f"{END_SECONDS_MAX:g} s."
                    )
                    break
                await asyncio.sleep(LOOK_SECONDS)
        for task in self._reading:
            task.cancel()
        for outcome in await asyncio.gather(*self._reading, return_exceptions=True):
            if isinstance(outcome, Exception):
                self.recording.failed(f"A reader failed: {type(outcome).__name__}: {outcome}")

    async def _judged(self) -> Verdict:
        names = [stream.name for stream in self.streams]
        try:
            await read_everything(self.client, self.recording, names)
        except TidelogError as error:
            self.recording.failed(f"The last readers failed: {type(error).__name__}: {error}")
        self.say("all records are read; comparing the replicas")
        compared, problems = await compare_replicas(
            self.cluster.servers[0], None if self.trust is None else self.trust.environment()
        )
        reports = await asyncio.to_thread(judge, self.recording)
        return Verdict(
            time.monotonic() - self._begun,
            self.faults,
            self.recording.operations,
            self.recording.longest_pause,
            reports,
            self.recording.failures,
            compared,
            problems,
            self.figures,
        )
