"""What clients do to three brokers while power may be lost, and what becomes of the brokers meanwhile.

Neighbours: `ledger` keeps what the clients were told, `power_losses` holds that against disks.
"""

from __future__ import annotations

import asyncio
import itertools
import random

import nats.errors
import nats.js.errors

import nats
import tidelog
from cluster.ledger import Acknowledged, Deletion, Existence, Ledger
from cluster.machines import BROKERS, Machines
from support.recording_files import History, RecordingFiles
from support.waiting import until
from tidelog import ProducerOptions
from tidelog.errors import TidelogError
from tidelog.model import StreamDescription, StreamSettings

SEGMENT_BYTES = 64 << 10
"""Small, so that a run rolls segments many times."""

UNANSWERED_MAX = 60
"""Records of a producer on their way."""

BATCH_BYTES = 4 << 10
"""Small, so that a flush has several batches before it: that is how replicas become suspect (R6)."""

LARGE_EVERY = 10
"""One in so many records goes over many pages."""

FLUSH_SECONDS = 0.005
"""More than this machine's disk may take: what waits for it is what a loss of power can tear."""

ANSWER_SECONDS_MAX = 1.0
LOAD_SECONDS_MAX = 120.0

SETTINGS = StreamSettings(
    replication_factor=3, min_insync_replicas=2, segment_bytes=SEGMENT_BYTES, batch_bytes_max=SEGMENT_BYTES
)


def new_disk(history: History) -> RecordingFiles:
    return RecordingFiles(history, flush_seconds=FLUSH_SECONDS)


class Load:
    """Some clients of a cluster, `count` records of each, and what happens to it meanwhile."""

    def __init__(
        self,
        machines: Machines,
        disks: list[RecordingFiles],
        ledger: Ledger,
        nats_url: str,
        count: int,
        rng: random.Random,
    ) -> None:
        self._machines = machines
        self._disks = disks
        self._ledger = ledger
        self._nats_url = nats_url
        self._count = count
        self._rng = rng
        self._numbers = itertools.count()
        self._client: tidelog.Client

    async def run(self) -> None:
        async with (
            asyncio.timeout(LOAD_SECONDS_MAX),
            tidelog.connect(self._machines.addresses) as self._client,
        ):
            await until(lambda: len(self._machines.image.brokers) == len(BROKERS), "three brokers")
            busy = await self._create("busy", partitions=2)
            single = await self._create("single", subject="single.>")
            shed = await self._create("shed")
            writers = [
                *(self._records(busy, idempotent=idempotent) for idempotent in 2 * (True, False)),
                self._one_by_one(single),
                self._publish(single, "with"),
                self._publish(single, ""),
                self._shed(shed),
            ]
            beside = [asyncio.create_task(self._churn()), asyncio.create_task(self._unrest())]
            await asyncio.gather(*writers)
            await asyncio.gather(*beside)

    # --- streams

    async def _create(self, name: str, **given: object) -> StreamDescription:
        stream = await self._client.create_stream(name, settings=SETTINGS, **given)  # type: ignore[arg-type]
        self._ledger.add(Existence(stream.stream_id, "there"))
        return stream

    async def _churn(self) -> None:
        """Streams that come and go, beside it all."""
        for number, progress in enumerate(self._parts(6)):
            await self._reached(progress)
            stream = await self._create(f"fleeting-{number}")
            async with self._client.producer(stream.name) as producer:
                await self._send(stream, producer)
            self._ledger.add(Existence(stream.stream_id, "doubtful"))
            try:
                await self._client.delete_stream(stream.name, stream_id=stream.stream_id)
            except TidelogError:
                # The broker that was asked was killed in the middle of it.
                continue
            self._ledger.add(Existence(stream.stream_id, "gone"))

    # --- records

    def _value(self) -> bytes:
        number = next(self._numbers)
        size = 12_000 if number % LARGE_EVERY == 0 else 1_500
        one = b"%d:" % number + self._rng.randbytes(self._rng.randrange(1, size))
        self._ledger.sent.add(one)
        return one

    async def _send(self, stream: StreamDescription, producer: tidelog.Producer, **named: bytes) -> None:
        value = self._value()
        receipt = await producer.send(value, **named)  # type: ignore[arg-type]
        self._ledger.add(Acknowledged((stream.stream_id, receipt.partition), receipt.offset, value))

    async def _records(self, stream: StreamDescription, *, idempotent: bool) -> None:
        """Pipelined, in batches as they come."""
        room = asyncio.Semaphore(UNANSWERED_MAX)

        async def one(number: int) -> None:
            try:
                await self._send(stream, producer, key=b"%d" % number)
            except TidelogError:
                # Only who never repeats may be left in doubt.
                if idempotent:
                    raise
                self._ledger.unanswered += 1
            finally:
                room.release()

        options = ProducerOptions(idempotent=idempotent, linger_ms=1, batch_bytes=BATCH_BYTES)
        async with (
            self._client.producer(stream.name, options=options) as producer,
            asyncio.TaskGroup() as group,
        ):
            for number in range(self._count):
                await room.acquire()
                group.create_task(one(number))

    async def _one_by_one(self, stream: StreamDescription) -> None:
        async with self._client.producer(stream.name, linger_ms=0) as producer:
            for _ in range(self._count // 2):
                await self._send(stream, producer)

    async def _publish(self, stream: StreamDescription, identity: str) -> None:
        """JetStream publishes; one with an id is repeated until it is answered, and stored once."""
        client = await nats.connect(self._nats_url)
        try:
            js = client.jetstream()
            for number in range(self._count // 2):
                value = self._value()
                headers = {"Nats-Msg-Id": f"{identity}-{number}"} if identity else None
                answered = False
                while not answered:
                    try:
                        ack = await js.publish(
                            f"single.{number % 5}", value, headers=headers, timeout=ANSWER_SECONDS_MAX
                        )
                    except (nats.errors.Error, nats.js.errors.Error, TimeoutError):
                        if not identity:
                            self._ledger.unanswered += 1
                            break
                    else:
                        answered = True
                        self._ledger.add(Acknowledged((stream.stream_id, 0), ack.seq - 1, value))
        finally:
            await client.close()

    async def _shed(self, stream: StreamDescription) -> None:
        """Records of which the older ones are deleted."""
        key = (stream.stream_id, 0)
        async with self._client.producer(stream.name, linger_ms=0) as producer:
            for number in range(1, self._count // 4 + 1):
                await self._send(stream, producer)
                if number % 10 == 0:
                    self._ledger.add(Deletion(key, number - 5, confirmed=False))
                    try:
                        start = await self._client.delete_records(stream.name, 0, number - 5)
                    except TidelogError:
                        # Its leader was killed in the middle of it.
                        continue
                    self._ledger.add(Deletion(key, start, confirmed=True))

    # --- unrest

    async def _unrest(self) -> None:
        """Leaders change: brokers stop in good order, are killed, and come back."""
        stop, elect, kill, again, follow, last = self._parts(6)
        await self._reached(stop)
        await self._away(1, killed=False)
        await self._reached(elect)
        await self._client.elect_preferred()
        await self._reached(kill)
        await self._away(2, killed=True)
        await self._reached(again)
        await self._client.elect_preferred()
        await self._reached(follow)
        await self._away(0, killed=True)
        await self._reached(last)
        await self._client.elect_preferred()

    async def _away(self, number: int, *, killed: bool) -> None:
        if killed:
            self._disks[number].kill()
            self._disks[number] = new_disk(self._ledger.history)
            await self._machines.end(number)
        else:
            await self._machines.stop(number)
        await self._machines.start(number, self._disks[number], nats=self._nats_url)
        await until(self._all_in_sync, "all in sync", LOAD_SECONDS_MAX)

    def _all_in_sync(self) -> bool:
        streams = self._machines.image.streams.values()
        return all(len(one.isr) == len(one.replicas) for stream in streams for one in stream.partitions)

    def _parts(self, count: int) -> list[int]:
        """Numbers of acknowledgements, spread over the run."""
        total = 5 * self._count
        return [total * part // (count + 1) for part in range(1, count + 1)]

    async def _reached(self, acknowledged: int) -> None:
        await until(
            lambda: self._ledger.acknowledged >= acknowledged,
            f"{acknowledged} records acknowledged",
            LOAD_SECONDS_MAX,
        )
