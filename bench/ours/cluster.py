"""Three Tidelog brokers as one cluster on this machine: the first is formatted, the others join by seeds."""

from __future__ import annotations

from pathlib import Path

import tidelog
from bench.harness.processes import Failed, Server, free_port
from bench.ours.broker import Broker, Endpoint, in_sync
from tidelog.cli.local.waiting import holds_within

BROKERS = 3
WHOLE_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05
CREATES_MAX = 8
"""Streams that are made at most until the wanted broker leads one; placement spreads leaders."""


class Cluster(Endpoint):
    """Three broker processes; each stream has three copies and the default min ISR, 2."""

    replicas = BROKERS

    def __init__(self, folder: Path, *, nats: str = "") -> None:
        ports = [free_port() for _ in range(BROKERS)]
        seeds = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.brokers = [
            Broker(
                folder,
                nats=nats,
                first=number == 0,
                more=(
                    "--broker-id", str(number), "--peer-listener", f"127.0.0.1:{port}", "--seeds", seeds,
                ),
            )
            for number, port in enumerate(ports)
        ]  # fmt: skip

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers]

    @property
    def members(self) -> list[Server]:
        return list(self.brokers)

    def start(self) -> None:
        for broker in self.brokers:
            broker.begin()
        for broker in self.brokers:
            broker.wait_ready()
        self.wait_whole()

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    def revive(self, member: Server) -> None:
        """Starts a broker that has ended on its old ports and data, and waits until the cluster is whole."""
        assert isinstance(member, Broker)
        member.start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Waits until all brokers vote and have a session and there is a controller; raises `Failed`."""

        async def whole(client: tidelog.Client) -> bool:
            found = await client.describe_cluster()
            active = [broker for broker in found.brokers if broker.state == "active"]
            return found.controller is not None and len(found.voters) == len(active) == BROKERS

        if not holds_within(lambda: self.ask(whole), WHOLE_SECONDS_MAX, pause=LOOK_SECONDS):
            raise Failed(f"the cluster is not whole within {WHOLE_SECONDS_MAX:g} s")

    def leader_of(self, stream: str) -> Broker:
        async def leader(client: tidelog.Client) -> int:
            found = await in_sync(client, stream, BROKERS)
            assert found.partitions[0].leader is not None
            return found.partitions[0].leader

        return self.brokers[self.ask(leader)]

    def controller(self) -> Broker:
        found: int | None = None

        async def has_controller(client: tidelog.Client) -> bool:
            nonlocal found
            found = (await client.describe_cluster()).controller
            return found is not None

        holds_within(lambda: self.ask(has_controller), WHOLE_SECONDS_MAX, pause=LOOK_SECONDS)
        if found is None:
            raise Failed(f"the cluster has no controller within {WHOLE_SECONDS_MAX:g} s")
        return self.brokers[found]

    def create_led_by_controller(self, names: list[str], *, fsync: bool, wanted: bool) -> str:
        """Makes streams of these names until one is led by the controller (`wanted`) or not; its name.

        The other streams are deleted. Raises `Failed` if no stream fits.
        """
        made: list[str] = []
        try:
            for name in names[:CREATES_MAX]:
                self.create(name, fsync=fsync)
                made.append(name)
                if (self.leader_of(name) is self.controller()) == wanted:
                    made.remove(name)
                    return name
        finally:
            for name in made:
                self.delete(name)
        raise Failed(f"the controller leads {'none' if wanted else 'all'} of {len(names)} streams")
