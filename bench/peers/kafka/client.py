"""Kafka's Python producers, which send record by record, in a process of their own.

`python -m bench.peers.kafka.client aiokafka|confluent …` prints one line of JSON.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import uvloop

from bench.measuring.clock import Span, print_result

LINGER_MS = 10
BATCH_BYTES = 1 << 20
BUFFER_BYTES = 64 << 20
WARM_SECONDS = 0.5
VALUES = 4096
RECORDS_BETWEEN_LOOKS = 500

PRODUCER: dict[str, object] = {
    "acks": "all",
    "linger.ms": LINGER_MS,
    "batch.size": BATCH_BYTES,
    "batch.num.messages": 1_000_000,
    "message.max.bytes": 2 * BATCH_BYTES,
    "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
    "queue.buffering.max.messages": 10_000_000,
}
"""The tuned settings of confluent-kafka."""

SETTINGS: dict[str, dict[str, object]] = {
    "aiokafka": {
        "client": "aiokafka on uvloop: await producer.send(), linger 10 ms, batches of 1 MiB, acks=all"
    },
    "confluent": {
        "client": "confluent-kafka (librdkafka): produce(), linger 10 ms, batches of 1 MiB, "
        "64 MiB of buffer, acks=all"
    },
}


async def aiokafka(options: argparse.Namespace) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    values = [os.urandom(options.size) for _ in range(VALUES)]
    producer = AIOKafkaProducer(
        bootstrap_servers=options.address, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES,
        max_request_size=2 * BATCH_BYTES,
    )  # fmt: skip
    await producer.start()
    try:

        async def spend(seconds: float) -> dict[str, float]:
            span, sent, last = Span(seconds), 0, None
            while not span.over:
                for _ in range(RECORDS_BETWEEN_LOOKS):
                    last = await producer.send(options.topic, values[sent % VALUES], partition=0)
                    sent += 1
            await producer.flush()
            if last is not None:
                await last
            return span.rate(sent, options.size)

        await spend(WARM_SECONDS)
        return await spend(options.seconds)
    finally:
        await producer.stop()


def confluent(options: argparse.Namespace) -> dict[str, float]:
    from confluent_kafka import Producer

    values = [os.urandom(options.size) for _ in range(VALUES)]
    producer = Producer({"bootstrap.servers": options.address, **PRODUCER})

    def spend(seconds: float) -> dict[str, float]:
        span, sent = Span(seconds), 0
        while not span.over:
            for _ in range(RECORDS_BETWEEN_LOOKS):
                try:
                    # No callback: once per record, it would measure Python and not Kafka.
                    producer.produce(options.topic, values[sent % VALUES], partition=0)
                except BufferError:
                    producer.poll(0.005)
                    continue
                sent += 1
            producer.poll(0)
        left = producer.flush(60)
        if left:
            raise SystemExit(f"{left} records were not acknowledged")
        return span.rate(sent, options.size)

    spend(WARM_SECONDS)
    return spend(options.seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.kafka.client", description="Produces to Kafka and prints a line of JSON."
    )
    parser.add_argument("work", choices=sorted(SETTINGS))
    parser.add_argument("--address", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(arguments)
    print_result(uvloop.run(aiokafka(options)) if options.work == "aiokafka" else confluent(options))


if __name__ == "__main__":
    main()
