"""A producer at a fixed rate that prints when each record is acknowledged, for `bench.clusters.failover`.

`python -m bench.ours.steady --address … --stream … --rate 200` runs until its standard input ends. It prints
`A <ns since the epoch>` for an acknowledgement, and `E <what>` for an error that an application would see.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from time import time_ns

import uvloop

import tidelog
from tidelog.errors import TidelogError

VALUE_BYTES = 100
UNANSWERED_MAX = 20_000
"""Unacknowledged records at most; further records wait, as an application's would."""


async def produce(options: argparse.Namespace) -> None:
    value = os.urandom(VALUE_BYTES)
    waiting: set[asyncio.Task[None]] = set()

    async with tidelog.connect(options.address.split(",")) as client:
        producer = client.producer(options.stream)
        await producer.start()

        async def one() -> None:
            try:
                await producer.send(value)
            except TidelogError as error:
                print(f"E {type(error).__name__}: {error}", flush=True)
            else:
                print(f"A {time_ns()}", flush=True)

        loop = asyncio.get_running_loop()
        stopped = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
        began, sent = loop.time(), 0
        while not stopped.done():
            if len(waiting) < UNANSWERED_MAX:
                task = loop.create_task(one())
                waiting.add(task)
                task.add_done_callback(waiting.discard)
                sent += 1
            await asyncio.sleep(max(0.0, began + sent / options.rate - loop.time()))
        for task in tuple(waiting):
            task.cancel()
        await producer.abort()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ours.steady",
        description="Produces at a fixed rate and prints acknowledgements.",
    )
    parser.add_argument("--address", required=True, help="host:port of the brokers, comma-separated")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--rate", type=float, required=True, help="records per second")
    uvloop.run(produce(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
