"""A reader of old records at a steady rate: `python -m bench.ours.catch_up …`, for `bench.catchup`.

It reads one partition as Arrow batches with the public library. `bench.catchup.cold` is the plain program
that it is compared with.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from time import perf_counter

import uvloop

import tidelog
from bench.catchup.cold import READING
from bench.measuring.pace import seconds_until_due


async def read(options: argparse.Namespace) -> None:
    """Reads until the time is over or the stream ends."""
    async with (
        tidelog.connect(options.address) as client,
        client.reader(
            options.stream, start=options.offset, partitions=[options.partition], follow=False
        ) as reader,
    ):
        began, done = perf_counter(), 0
        async for _ in reader.batches():
            if not done:
                print(READING, flush=True)
            done += options.batch_bytes
            passed = perf_counter() - began
            if passed >= options.seconds:
                return
            await asyncio.sleep(seconds_until_due(done, options.bytes_per_second, passed))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ours.catch_up", description="Reads a partition at a steady rate."
    )
    parser.add_argument("--address", required=True, help="host:port of the broker")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--partition", type=int, required=True)
    parser.add_argument("--offset", type=int, default=0, help="first offset to read")
    parser.add_argument("--batch-bytes", type=int, required=True, help="bytes of each batch, as stored")
    parser.add_argument("--bytes-per-second", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    uvloop.run(read(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
