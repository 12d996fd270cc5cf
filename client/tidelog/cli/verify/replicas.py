"""`tidelog verify --cluster`: reads every replica of every partition and compares it with the others.

Only records below the present high watermark are compared, so the cluster may go on working meanwhile.
`replica_reading` reads the replicas, and `tidelog.history.replicas` compares them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

import tidelog
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import console, facts
from tidelog.cli.progress import Counter
from tidelog.cli.verify.replica_reading import ReplicaReading, extent
from tidelog.errors import TidelogError
from tidelog.history.replicas import Comparison, Lack, Piece
from tidelog.model import ClusterDescription, StreamDescription, id_text
from tidelog.wording import count_of

SETTLE_SECONDS = 15.0
"""How long a replica may take to learn the high watermark, and a broker to answer."""

NO_BROKER = "its broker is not registered, or has no address"

SHOWN_EVERY = 1000
"""Offsets between two updates of the progress bar."""


@dataclass(frozen=True)
class Finding:
    """Something wrong with one replica."""

    stream: str
    partition: int
    broker: int
    what: str
    """``corrupt``, ``missing`` or ``divergent``; ``behind``, which is a note."""
    start: int
    end: int
    """The first offset after the affected ones."""
    why: str

    def __str__(self) -> str:
        last = self.end - 1
        offsets = f"offset {last}" if self.start == last else f"offsets {self.start}–{last}"
        where = f"{self.stream}/{self.partition} on broker {self.broker}"
        return f"{where}: {self.what}, {offsets}: {self.why}"


@dataclass
class ClusterReport:
    """The result of a verification."""

    cluster_id: str
    partitions: int = 0
    replicas: int = 0
    records: int = 0
    """Compared offsets; those of a partition count once, not once for each replica."""
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    """Replicas that are behind, and not in sync."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "clean": not self.problems}


@dataclass(frozen=True)
class _Plan:
    """What to compare of one partition."""

    stream: StreamDescription
    partition: int
    brokers: tuple[int, ...]
    """The leader first."""
    start: int
    end: int


class ClusterVerification:
    """One verification of a cluster."""

    def __init__(self, client: tidelog.Client, cluster: ClusterDescription) -> None:
        self._client = client
        self._brokers = {
            one.broker_id: client.dial(one.listeners[0].target) for one in cluster.brokers if one.listeners
        }
        self.report = ClusterReport(id_text(cluster.cluster_id))
        self._silent: set[int] = set()
        """Brokers that did not answer when the comparison was planned."""
        self._silent_until = asyncio.get_running_loop().time() + SETTLE_SECONDS
        """Until when these brokers may answer, all partitions together; on the event loop's clock."""

    async def close(self) -> None:
        for broker in self._brokers.values():
            await broker.close()

    async def run(self, pattern: str) -> ClusterReport:
        """Verifies the streams whose names match `pattern` (RE2), or all if it is empty."""
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
        """From the lowest log start offset to the greatest high watermark of all replicas."""
        placed = stream.partitions[number]
        order = sorted(placed.replicas, key=lambda broker: (broker != placed.leader, broker))
        starts, ends = [], []
        for broker in order:
            if broker in self._brokers:
                try:
                    start, end = await extent(self._brokers[broker], stream, number)
                except TidelogError:
                    # The comparison reports why, after it has waited a while for the broker.
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
            yield Piece(plan.start, plan.end, why=NO_BROKER)
            return
        reading = ReplicaReading(
            self._brokers[broker], plan.stream, plan.partition, plan.start, plan.end, deadline
        )
        async with aclosing(reading.pieces()) as pieces:
            async for piece in pieces:
                yield piece

    async def _only_reachable(self, plan: _Plan) -> None:
        """Reports brokers that do not answer, where no replica is known to have a committed record."""
        for broker in plan.brokers:
            why = NO_BROKER
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
        # A replica may have joined or left the ISR while the others were read.
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
    """Reads and compares everything. Raises `TidelogError` if the cluster cannot name its streams."""
    verification = ClusterVerification(client, await client.describe_cluster())
    try:
        return await verification.run(pattern)
    finally:
        await verification.close()


def show_cluster(report: ClusterReport) -> None:
    """Prints the result as text."""
    screen = console()
    screen.print(
        facts(
            [
                ("cluster", report.cluster_id),
                ("partitions", f"{report.partitions}, {count_of(report.replicas, 'replica')}"),
                ("compared", count_of(report.records, "record")),
            ]
        )
    )
    for kind, findings in (("problem", report.problems), ("note", report.notes)):
        for finding in findings:
            screen.print(f"{kind}: {finding}", markup=False)
    count = len(report.problems)
    screen.print("\nclean" if not count else f"\n{count_of(count, 'problem')}")
