"""The preStop hook of a pod: `tidelog-broker prepare-stop` beside a broker of a cluster (K2)."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import tidelog
from cluster.conftest import STREAM
from support.broker import BrokerProcess
from support.trio import Trio, complete, joined


async def hook(broker: BrokerProcess, seconds: int) -> subprocess.CompletedProcess[str]:
    """The command, as it would run in the broker's pod."""
    arguments = [
        sys.executable, "-m", "tidelog_broker", "prepare-stop", "--data-dir", str(broker.data),
        "--listener", f"internal={broker.address}", "--timeout-seconds", str(seconds),
    ]  # fmt: skip
    return await asyncio.to_thread(
        subprocess.run, arguments, capture_output=True, text=True, check=False, timeout=60
    )


async def test_after_it_nothing_is_led_there_and_the_next_broker_has_to_wait(trio: Trio) -> None:
    async with tidelog.connect(trio.addresses) as client:
        await joined(client)
        await client.create_stream(STREAM, partitions=3)
        await complete(client, STREAM)

        done = await hook(trio.brokers[1], 30)

        assert (done.returncode, done.stdout, done.stderr) == (0, "the broker can stop\n", "")
        described = await client.describe_stream(STREAM)
        assert {one.leader for one in described.partitions} == {0, 2}
        states = {one.broker_id: one.state for one in (await client.describe_cluster()).brokers}
        assert states == {0: "active", 1: "stopping", 2: "active"}

        other = await hook(trio.brokers[2], 0)

        assert other.returncode == 1
        assert other.stdout.startswith(f"after 0 s the broker should not stop yet: {STREAM}/")
        assert other.stdout.endswith("too few in sync, and 2 more\n")

        trio.brokers[1].stop()
        trio.brokers[1].start()
        await complete(client, STREAM)
        assert (await hook(trio.brokers[2], 30)).returncode == 0
