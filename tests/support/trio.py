"""Three brokers as processes: one is formatted, the others join by seeds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from support.broker import BrokerProcess
from support.hosts import HOST, free_ports
from support.waiting import until_true
from tidelog import Client
from tidelog_broker.__main__ import run as tidelog_broker_command

WAIT_SECONDS = 20.0


class Trio:
    """A cluster on loopback, on the same ports over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        nats: str = "",
        flags_of: Callable[[int], tuple[str, ...]] = lambda _: (),
        tls: str = "off",
        http_tls: str = "off",
    ) -> None:
        """`flags_of`: further flags of each broker. `tls`, `http_tls`: of the listeners."""
        self.ports = free_ports(3)
        seeds = ",".join(f"{HOST}:{port}" for port in self.ports)
        self.brokers = []
        for number, port in enumerate(self.ports):
            (folder / str(number)).mkdir()
            flags = ("--broker-id", str(number), "--peer-listener", f"{HOST}:{port}", "--seeds", seeds)
            more = flags_of(number)
            self.brokers.append(
                BrokerProcess(
                    folder / str(number), nats=nats, flags=(*flags, *more), tls=tls, http_tls=http_tls
                )
            )

    @property
    def addresses(self) -> list[str]:
        """Of the clients' listeners."""
        return [broker.address for broker in self.brokers]

    @property
    def address(self) -> str:
        """The addresses in one text, as an option takes them."""
        return ",".join(self.addresses)

    def start(self) -> None:
        # In this process: another would take longer to start than the rest of many a test.
        data = str(self.brokers[0].data)
        assert tidelog_broker_command(["format", "--data-dir", data, "--broker-id", "0"]) == 0
        self.start_again()

    def start_again(self) -> None:
        """All at once, as after a power cut."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def kill(self) -> None:
        """All at once."""
        for broker in self.brokers:
            broker.kill()

    def lose_disk(self, number: int) -> None:
        """Of a broker that is down; it comes back with an empty one."""
        shutil.rmtree(self.brokers[number].data)

    def stop(self) -> None:
        for broker in self.brokers:
            if broker.running:
                broker.kill()


async def complete(client: Client, stream: str) -> None:
    """Waits until every replica of a stream is in sync, and all three brokers vote."""

    async def is_complete() -> bool:
        described, cluster = await client.describe_stream(stream), await client.describe_cluster()
        return len(cluster.voters) == 3 and all(len(one.isr) == 3 for one in described.partitions)

    await until_true(is_complete, "three replicas in sync and three voters", WAIT_SECONDS)


async def joined(client: Client) -> None:
    """Waits until three brokers are registered."""

    async def are_there() -> bool:
        return len((await client.describe_cluster()).brokers) == 3

    await until_true(are_there, "three brokers", WAIT_SECONDS)
