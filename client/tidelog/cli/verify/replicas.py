"""`tidelog verify --cluster`: every replica of every partition is read, and held against the others.

What is compared lies below the high watermark of the moment; the cluster may go on working. The
judgement is `tidelog.history.replicas`, the reading `replica_reading`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

import tidelog
from tidelog._connecting.broker_channel import dial
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import console, facts
from tidelog.cli.progress import Counter
from tidelog.cli.verify.replica_reading import ReplicaReading, extent
from tidelog.errors import TidelogError
from tidelog.history.replicas import Comparison, Lack, Piece
from tidelog.model import ClusterDescription, StreamDescription, id_text

SETTLE_SECONDS = 15.0
"""How long a replica may take to learn of what is committed, and a broker to answer."""

SHOWN_EVERY = 1000
"""Offsets between two looks at the progress bar."""


@dataclass(frozen=True)
class Finding:
    """A sentence about one replica."""

    stream: str
    partition: int
    broker: int
    what: str
    """corrupt, missing, divergent; behind is a note."""
    start: int
    end: int
    """The first offset after."""
    why: str

    def __str__(self) -> str:
        where = f"{self.stream}/{self.partition} on broker {self.broker}"
        return f"{where}: {self.what}, offsets {self.start}–{self.end - 1}: {self.why}"


@dataclass
class ClusterReport:
    """What was read, and what is wrong."""

    cluster_id: str
    partitions: int = 0
    replicas: int = 0
    records: int = 0
    """Offsets compared, of each partition once."""
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    """Replicas that are not in sync, and behind."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "clean": not self.problems}


@dataclass(frozen=True)
class _Plan:
    """One partition's comparison."""

    stream: StreamDescription
    partition: int
    brokers: tuple[int, ...]
    """The leader first."""
    start: int
    end: int


class ClusterVerification:
    """Reads a cluster; see the module."""

    def __init__(self, client: tidelog.Client, cluster: ClusterDescription) -> None:
        self._client = client
        self._brokers = {
            one.broker_id: dial(one.listeners[0].target) for one in cluster.brokers if one.listeners
        }
        self.report = ClusterReport(id_text(cluster.cluster_id))
        self._silent: set[int] = set()
        """Brokers that did not answer when the work was planned."""
        self._silent_until = asyncio.get_running_loop().time() + SETTLE_SECONDS
        """How long they are waited for, all partitions together."""

    async def close(self) -> None:
        for broker in self._brokers.values():
            await broker.close()

    async def run(self, pattern: str) -> ClusterReport:
        """Streams whose names match `pattern` (RE2); all if it is empty."""
        streams = await self._client.list_streams(pattern)
        if pattern and not streams:
            fail(f"no stream has a name that matches {pattern!r}", Exit.NOT_FOUND)
        plans = [
            await self._planned(stream, partition.partition)
            for stream in streams
            for partition in stream.partitions
        ]
        with Counter("records", sum(plan.end - plan.start for plan in plans)) as counter:
            for plan in plans:
                await self._compare(plan, counter)
        return self.report

    async def _planned(self, stream: StreamDescription, number: int) -> _Plan:
        """From the lowest start of any replica to the greatest high watermark that one of them knows."""
        placed = stream.partitions[number]
        order = sorted(placed.replicas, key=lambda broker: (broker != placed.leader, broker))
        starts, ends = [], []
        for broker in order:
            if broker in self._brokers:
                try:
                    start, end = await extent(self._brokers[broker], stream, number)
                except TidelogError:
                    # The comparison says why, and waits a while for who comes back.
                    self._silent.add(broker)
                    continue
                starts.append(start)
                ends.append(end)
        return _Plan(stream, number, tuple(order), min(starts, default=0), max(ends, default=0))

    async def _compare(self, plan: _Plan, counter: Counter) -> None:
        self.report.partitions += 1
        self.report.replicas += len(plan.brokers)
        if not plan.end:
            await self._only_reachable(plan)
            return
        comparison = Comparison(plan.brokers, plan.start, plan.end)
        settled = asyncio.get_running_loop().time() + SETTLE_SECONDS
        readings = {
            broker: self._pieces(plan, broker, self._silent_until if broker in self._silent else settled)
            for broker in plan.brokers
        }
        told = plan.start
        try:
            while (broker := comparison.next_replica()) is not None:
                comparison.take(broker, await anext(readings[broker]))
                if comparison.at - told >= SHOWN_EVERY:
                    told = comparison.at
                    done = self.report.records + told - plan.start
                    counter.set(done, done)
        finally:
            for reading in readings.values():
                await reading.aclose()
        self.report.records += plan.end - plan.start
        await self._judge(plan, comparison)

    async def _pieces(self, plan: _Plan, broker: int, deadline: float) -> AsyncGenerator[Piece]:
        if broker not in self._brokers:
            yield Piece(plan.start, plan.end, why="its broker is not registered, or has no address")
            return
        reading = ReplicaReading(
            self._brokers[broker], plan.stream, plan.partition, plan.start, plan.end, deadline
        )
        async with aclosing(reading.pieces()) as pieces:
            async for piece in pieces:
                yield piece

    async def _only_reachable(self, plan: _Plan) -> None:
        """Nothing is committed there, or nobody of them answers, which is worth a word."""
        for broker in plan.brokers:
            why = "its broker is not registered, or has no address"
            if broker in self._brokers:
                try:
                    await extent(self._brokers[broker], plan.stream, plan.partition)
                except TidelogError as error:
                    why = str(error)
                else:
                    continue
            self.report.problems.append(
                Finding(plan.stream.name, plan.partition, broker, Lack.MISSING, 0, 1, why)
            )

    async def _judge(self, plan: _Plan, comparison: Comparison) -> None:
        if not comparison.differences:
            return
        # Who is in sync now: a replica may have caught up, or been taken out, while the others were read.
        placed = (await self._client.describe_stream(plan.stream.name)).partitions[plan.partition]
        for found in comparison.differences:
            behind = found.what is Lack.MISSING and found.replica not in placed.isr
            finding = Finding(
                plan.stream.name,
                plan.partition,
                found.replica,
                "behind" if behind else found.what,
                found.start,
                found.end,
                found.why,
            )
            (self.report.notes if behind else self.report.problems).append(finding)


async def verify_cluster(client: tidelog.Client, pattern: str) -> ClusterReport:
    """Reads and compares everything; raises `TidelogError` if the cluster cannot say what there is."""
    verification = ClusterVerification(client, await client.describe_cluster())
    try:
        return await verification.run(pattern)
    finally:
        await verification.close()


def show_cluster(report: ClusterReport) -> None:
    screen = console()
    screen.print(
        facts(
            [
                ("cluster", report.cluster_id),
                ("partitions", f"{report.partitions}, {report.replicas} replicas"),
                ("compared", f"{report.records} records"),
            ]
        )
    )
    for kind, findings in (("problem", report.problems), ("note", report.notes)):
        for finding in findings:
            screen.print(f"{kind}: {finding}", markup=False)
    count = len(report.problems)
    screen.print("\nclean" if not count else f"\n{count} problem{'s' if count > 1 else ''}")
