"""A stream that is deleted and created again under the same name, while clients write to it and read it.

A client is bound to the stream that it found (by its id), and starts again when that stream is gone. So each
stream of the name has a history of its own. At the end of a run the history of the last stream is checked: it
has all records that were acknowledged for this stream, and none that was sent to an earlier one.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from simulator.checks import require
from simulator.clients.client import SimClient
from simulator.clients.producers import DELIVERY_S
from simulator.cluster import Cluster
from simulator.node import Key
from simulator.watch.batches import read_all
from tidelog._options import ProducerOptions
from tidelog.client import Client
from tidelog.errors import LogTruncated, OffsetOutOfRange, StreamNotFound, TidelogError
from tidelog.history import History, Outcome, Read, Write, check, runs_of, stamp
from tidelog.history import Producer as HistoryProducer
from tidelog.model import Position, Retention, StreamSettings
from tidelog_broker.core.metadata.decisions import streams as decide

NAME: Final = "renewed"
FIRST_CLIENT: Final = 2_000
"""The names of these clients begin here, beyond the names of all other clients."""
PAUSE_S: Final = 0.02
AGE_MS: Final = 15_000
"""The retention of the stream in runs with wrong clocks: no older record stands before its first ones."""
SEGMENT_BYTES: Final = 4 << 10
AGAIN_S: Final = 0.2


class Renewals:
    """Renews the stream, and has its clients. Draws from its own random stream."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = cluster.world.rng_of("renewals")
        self._histories: dict[bytes, History] = {}
        """By stream id."""
        self.producer: RenewedProducer | None = None
        self.reader: RenewedReader | None = None

    def renew(self) -> None:
        cluster = self._cluster
        stream_id = uuid.UUID(int=self._rng.getrandbits(128)).bytes
        settings = StreamSettings(
            partitions=1,
            replication_factor=min(3, len(cluster.nodes)),
            min_insync_replicas=2,
            retention=Retention(age_ms=AGE_MS) if cluster.plan.clock_jumps else None,
            segment_bytes=SEGMENT_BYTES,
            batch_bytes_max=SEGMENT_BYTES,
        )
        if cluster.checks.image.stream_named(NAME) is not None:
            cluster.world.tell(f"{NAME} is deleted")
            cluster.decide(lambda image: decide.delete_stream(image, NAME))
        # At once, so that clients see another stream in its place, and perhaps never see that it was gone.
        cluster.decide(
            lambda image: decide.create_stream(image, NAME, settings, stream_id=stream_id, created_us=0)
        )
        if self.producer is None:
            given = (cluster.world, cluster.network, History())
            self.producer = RenewedProducer(
                self._histories, *given, FIRST_CLIENT, tuple(cluster.nodes), NAME, 0, 0
            )
            self.reader = RenewedReader(
                self._histories, *given, FIRST_CLIENT + 1, tuple(cluster.nodes), NAME, 0, 0
            )

    @property
    def keys(self) -> list[Key]:
        """The partition of the stream that has the name now."""
        stream = self._cluster.checks.image.stream_named(NAME)
        return [] if stream is None else [(stream.id, 0)]

    def clients(self) -> list[SimClient]:
        return [client for client in (self.producer, self.reader) if client is not None]

    def unrest(self) -> Iterator[str]:
        """Yields why the stream and its clients have not recovered yet."""
        if self.producer is not None and not self.producer.idle:
            yield f"the producer of {NAME} still waits for an answer"
        for key in self.keys:
            leader = self._cluster.leader_of(key)
            if leader is None:
                yield f"{NAME} has no leader"
            elif self.reader is not None and self.reader.at(key[0]) < leader.replicas[key].high_watermark:
                yield f"the reader of {NAME} has read up to {self.reader.at(key[0])} only"

    def judge(self) -> None:
        """Raises Violated if the history of the last stream has an anomaly."""
        for key in self.keys:
            history = self._histories.get(key[0])
            leader = self._cluster.leader_of(key)
            if history is None or leader is None or self._cluster.checks.truth(key).unclean:
                continue
            log = leader.replicas[key].log
            read_all(history, leader.replicas[key], key, 0)
            history.last_readers[0], history.starts[0] = log.end_offset, log.start_offset
            report = check(history)
            self._cluster.checks.mark("M5 made again under its name")
            require(report.ok, "I8", f"the history of {NAME} has anomalies: {'; '.join(report.examples[:3])}")


class _Renewed(SimClient):
    """A client of the stream that has the name at present."""

    def __init__(self, histories: dict[bytes, History], *given: Any) -> None:
        super().__init__(*given)
        self._histories = histories
        self.stopped = False
        self.run(self._main)

    async def _main(self) -> int:
        while not self.stopped:
            try:
                async with self.client() as client:
                    while not self.stopped:
                        found = await client._metadata.refresh(self.stream)
                        await self._with(client, found.stream_id)
            except TidelogError:
                await asyncio.sleep(AGAIN_S)
        return 0

    @abstractmethod
    async def _with(self, client: Client, stream_id: bytes) -> None:
        """Uses the stream until it is gone."""

    def _history(self, stream_id: bytes) -> History:
        return self._histories.setdefault(stream_id, History())


class RenewedProducer(_Renewed):
    """Sends numbered records one after the other. It never sends a number to two streams."""

    _number = 0
    idle = False
    """It was stopped, and waits for no answer."""

    async def _main(self) -> int:
        await super()._main()
        self.idle = True
        return 0

    async def _with(self, client: Client, stream_id: bytes) -> None:
        options = ProducerOptions(delivery_timeout_s=DELIVERY_S, request_timeout_s=1.0)
        producer = client.producer(self.stream, options=options)
        await producer.start()
        # Only the producer knows which stream it found: another one may have got the name meanwhile.
        history = self._history(producer._sender.description.stream_id)
        history.producers[self.name] = HistoryProducer(f"producer {self.name}", ordered=False)
        try:
            while not self.stopped:
                number, self._number = self._number, self._number + 1
                try:
                    receipt = await producer.send(
                        stamp(self.name, number), partition=self.partition, timestamp=self.now()
                    )
                except TidelogError as error:
                    outcome = Outcome.REFUSED if error.definite else Outcome.UNKNOWN
                    history.writes.append(Write(self.name, 0, number, 1, outcome, None))
                    if isinstance(error, StreamNotFound):
                        return
                else:
                    history.writes.append(
                        Write(self.name, 0, number, 1, Outcome.ACKNOWLEDGED, receipt.offset)
                    )
                await asyncio.sleep(PAUSE_S)
        finally:
            await producer.abort()


class RenewedReader(_Renewed):
    """Reads each stream of the name from its start."""

    def __init__(self, histories: dict[bytes, History], *given: Any) -> None:
        self._positions: dict[bytes, Position] = {}
        super().__init__(histories, *given)

    def at(self, stream_id: bytes) -> int:
        position = self._positions.get(stream_id)
        return 0 if position is None else position.offset

    async def _with(self, client: Client, stream_id: bytes) -> None:
        start = self._positions.setdefault(stream_id, Position(0))
        history = self._history(stream_id)
        reader = client.reader(self.stream, start=start, partitions=[0], stream_id=stream_id)
        try:
            async for batch in reader.fetched_batches():
                history.reads.extend(
                    Read(self.name, 0, batch.base_offset + index, producer, first, count)
                    for index, producer, first, count in runs_of(batch.columns.column("value"))
                )
                self._positions[stream_id] = batch.position
        except LogTruncated as error:
            self._positions[stream_id] = Position(int(error.details["divergence_offset"]))
            history.rewind(self.name, 0)
        except OffsetOutOfRange as error:
            self._positions[stream_id] = Position(int(error.details["log_start_offset"]))
            history.rewind(self.name, 0)
        finally:
            await reader.aclose()
