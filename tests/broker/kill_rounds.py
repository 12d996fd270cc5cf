"""kill -9 under load, again and again, with a check of everything after each restart.

Four producers write to each of two streams, one `fsync`, one `page-cache`: gRPC batches
of an idempotent producer (pipelined, sent again after each crash), gRPC batches without
one, NATS requests with a message id (asked again until they are answered), and NATS
requests without. After every restart the whole of both logs is read:

- every acknowledged record stands at the offset that was acknowledged;
- what idempotent producers sent stands there once at most;
- each producer's records are in the order in which it sent them;
- no offset was handed out twice in one leader epoch;
- offsets have no gaps.

``python -m broker.kill_rounds [ROUNDS [SEED]]`` (with tests on the path) runs it by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
from nats.aio.client import Client
from nats.errors import Error as NatsPyError

import nats
from support.api import Api, batch, code_of, start_of
from support.broker import BrokerProcess
from support.nats_server import NatsServer
from support.waiting import until
from tidelog.records import decode_batch, split_batches, verify_batch
from tidelog_proto import common_pb2, log_pb2

PIPELINED = 5
LOAD_SECONDS = (0.3, 1.2)
AGAIN_SECONDS = 0.02

Place = tuple[str, int]
"""Stream and offset."""


@dataclass
class History:
    """What producers sent and were told."""

    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    handed_out: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    """(stream, epoch, offset) → the record that got it."""
    sent: set[bytes] = field(default_factory=set)
    repeated: int = 0
    """Answers that said: it was there already."""

    def told(self, stream: str, epoch: int, offset: int, value: bytes, *, duplicate: bool) -> None:
        self.repeated += duplicate
        first = self.acknowledged.setdefault((stream, offset), value)
        assert first == value, f"{stream} offset {offset} was given to {first!r} and to {value!r}"
        if not duplicate:
            owner = self.handed_out.setdefault((stream, epoch, offset), value)
            assert owner == value, f"{stream} epoch {epoch} offset {offset}: {owner!r} and {value!r}"


@dataclass
class Report:
    """Figures of a run."""

    rounds: int = 0
    acknowledged: int = 0
    records: int = 0
    repeated: int = 0
    restart_seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.rounds} kills; {self.acknowledged} records acknowledged, all of them there; "
            f"{self.records} in the logs; {self.repeated} answers to repeats; restart median "
            f"{sorted(self.restart_seconds)[len(self.restart_seconds) // 2]:.2f} s, longest "
            f"{max(self.restart_seconds):.2f} s"
        )


class Producer:
    """Numbers its records, so that their order can be seen."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self._next = 0

    def value(self, rng: random.Random) -> bytes:
        one = b"%s:%d:" % (self.name.encode(), self._next) + rng.randbytes(rng.randrange(20, 300))
        self._next += 1
        self.history.sent.add(one)
        return one


Stream = common_pb2.StreamDescription


async def _grpc(
    broker: BrokerProcess, stream: Stream, producer: Producer, stop: asyncio.Event, rng: random.Random,
    *, idempotent: bool,
) -> None:  # fmt: skip
    """Pipelines batches; what was unanswered at a crash is sent again if the producer is idempotent."""
    producer_id: int | None = None
    sequence = 0
    pending: deque[tuple[int, list[bytes]]] = deque()
    while not stop.is_set():
        with contextlib.suppress(grpc.aio.AioRpcError, CallEnded):
            async with Api(broker.address) as api:
                if idempotent and producer_id is None:
                    answer = await api.log.InitProducer(log_pb2.InitProducerRequest())
                    producer_id = answer.producer_id
                if not idempotent:
                    pending.clear()
                call = api.produce()

                async def send(entry: tuple[int, list[bytes]], call=call, producer_id=producer_id) -> None:  # type: ignore[no-untyped-def]
                    named = {} if producer_id is None else {"producer_id": producer_id, "sequence": entry[0]}
                    with contextlib.suppress(asyncio.InvalidStateError):
                        await call.send(stream, batch(*entry[1], **named))

                for entry in list(pending):
                    await send(entry)
                while pending or not stop.is_set():
                    while len(pending) < PIPELINED and not stop.is_set():
                        values = [producer.value(rng) for _ in range(rng.randrange(1, 5))]
                        pending.append((sequence, values))
                        sequence += len(values)
                        await send(pending[-1])
                    response = await call.call.read()
                    if not isinstance(response, log_pb2.ProduceResponse):
                        raise CallEnded
                    if response.HasField("error"):
                        assert code_of(response.error) in ("STOPPING", "UNAVAILABLE"), response.error
                        raise CallEnded
                    receipt = response.receipt
                    for place, one in enumerate(pending.popleft()[1]):
                        producer.history.told(
                            stream.name, receipt.leader_epoch, receipt.base_offset + place, one,
                            duplicate=receipt.duplicate,
                        )  # fmt: skip
        await asyncio.sleep(AGAIN_SECONDS)


class CallEnded(Exception):
    """The call ended: the broker was killed."""


async def _nats(
    client: Client, stream: Stream, producer: Producer, stop: asyncio.Event, rng: random.Random, *, ids: bool
) -> None:
    """Requests; with ids one at a time and asked until answered, without them once each, four at a time."""

    async def ask(value: bytes, headers: dict[str, str] | None) -> bool:
        try:
            answer = await client.request(f"{stream.name}.x", value, timeout=1.0, headers=headers)
        except NatsPyError:
            return False
        told = json.loads(answer.data)
        if "error" in told:
            return False
        producer.history.told(
            stream.name, told["epoch"], told["offset"], value, duplicate=told.get("duplicate", False)
        )
        return True

    number = 0
    while not stop.is_set():
        if ids:
            value, name = producer.value(rng), f"{producer.name}-{number}"
            answered = [False]
            while not all(answered) and not stop.is_set():
                answered = [await ask(value, {"Nats-Msg-Id": name})]
                await asyncio.sleep(0 if all(answered) else AGAIN_SECONDS)
        else:
            answered = await asyncio.gather(*(ask(producer.value(rng), None) for _ in range(4)))
            if not all(answered):
                await asyncio.sleep(AGAIN_SECONDS)
        number += 1


async def _check(broker: BrokerProcess, streams: list[Stream], history: History) -> int:
    """Reads both logs from their start; the number of records in them."""
    acknowledged = dict(history.acknowledged)
    count = 0
    async with Api(broker.address) as api:
        for stream in streams:
            found: list[bytes] = []
            async for response in api.fetch(start_of(stream), format=log_pb2.VERBATIM):
                assert response.WhichOneof("item") != "error", response.error
                for header, body in split_batches(response.batches):
                    verify_batch(body, header, stream.stream_id, 0)
                    assert header.base_offset == len(found), f"{stream.name}: gap at {len(found)}"
                    found += decode_batch(body, header).column("value").to_pylist()
            count += len(found)
            for (name, offset), value in acknowledged.items():
                if name == stream.name:
                    assert offset < len(found), f"{name}: acknowledged offset {offset} is lost"
                    assert found[offset] == value, f"{name}: offset {offset} holds another record"
            assert set(found) <= history.sent
            order: dict[bytes, int] = defaultdict(lambda: -1)
            for value in found:
                producer, number, _ = value.split(b":", 2)
                # Strictly, so that nothing stands there twice: those without an id never ask again.
                assert int(number) > order[producer], (
                    f"{stream.name}: {producer!r} {number!r} after {order[producer]}"
                )
                order[producer] = int(number)
    return count


@contextlib.contextmanager
def _broker(folder: Path, url: str) -> Iterator[BrokerProcess]:
    with BrokerProcess(folder, nats=url) as broker:
        yield broker


async def run(folder: Path, *, rounds: int, seed: int) -> Report:
    """Raises AssertionError with what was broken."""
    rng = random.Random(seed)
    history, report = History(), Report()
    with NatsServer() as server, _broker(folder, server.url) as broker:
        async with Api(broker.address) as api:
            streams = [
                await api.create("synced", subject="synced.>"),
                await api.create("cached", subject="cached.>", durability=common_pb2.PAGE_CACHE),
            ]
        client = await nats.connect(server.url)
        stop = asyncio.Event()
        tasks = []
        for stream in streams:
            for idempotent in (True, False):
                kind = "idempotent" if idempotent else "plain"
                grpc_producer = Producer(f"grpc-{kind}-{stream.name}", history)
                nats_producer = Producer(f"nats-{kind}-{stream.name}", history)
                tasks += [
                    asyncio.create_task(
                        _grpc(broker, stream, grpc_producer, stop, rng, idempotent=idempotent)
                    ),
                    asyncio.create_task(_nats(client, stream, nats_producer, stop, rng, ids=idempotent)),
                ]
        try:
            for _ in range(rounds):
                before = len(history.acknowledged)
                await until(lambda before=before: len(history.acknowledged) > before, "records", 30)  # type: ignore[misc]
                await asyncio.sleep(rng.uniform(*LOAD_SECONDS))
                for task in tasks:
                    if task.done():
                        task.result()
                broker.kill()
                began = time.perf_counter()
                await asyncio.to_thread(broker.start)
                report.restart_seconds.append(time.perf_counter() - began)
                report.records = await _check(broker, streams, history)
                report.rounds += 1
        finally:
            stop.set()
            await asyncio.gather(*tasks)
            await client.close()
        report.records = await _check(broker, streams, history)
        report.acknowledged, report.repeated = len(history.acknowledged), history.repeated
    return report


def main(arguments: list[str]) -> None:
    rounds = int(arguments[0]) if arguments else 50
    seed = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().randrange(1 << 32)
    with tempfile.TemporaryDirectory(prefix="tidelog-kill-") as folder:
        began = time.perf_counter()
        report = asyncio.run(run(Path(folder), rounds=rounds, seed=seed))
        sys.stdout.write(f"seed {seed}: {report}; {time.perf_counter() - began:.1f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
