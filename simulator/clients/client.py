"""The common part of simulated producers and readers: a process with the client library.

They use `tidelog` as users do; only the connections behind its channels are simulated. They write a history
of what they did (`tidelog.history`). Neighbours: `producers`, `readers`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from simulator.kernel.network import Network
from simulator.kernel.processes import Process
from simulator.rpc.channels import Channel
from simulator.service import CLIENT_PORT, host_of
from simulator.world import T0_US, World
from tidelog._connecting.broker_channel import BrokerChannel
from tidelog._options import ClientOptions
from tidelog.client import Client
from tidelog.history import History

REQUEST_TIMEOUT_S = 2.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SimClient:
    """A client of one partition."""

    def __init__(
        self,
        world: World,
        network: Network,
        history: History,
        name: int,
        brokers: tuple[int, ...],
        stream: str,
        partition: int,
        place: int,
    ) -> None:
        """`name` is the client in the history, `place` the partition there."""
        self.world = world
        self.history = history
        self.name = name
        self.stream = stream
        self.partition = partition
        self.place = place
        self.rng: random.Random = world.rng_of(f"client {name}")
        self._brokers = brokers
        self.process = Process(
            world, network, network.machine(f"client-{name}"), f"client {name}", None, lambda: (1, 10),
            lambda: None,
        )  # fmt: skip
        self.failure: BaseException | None = None
        """The error that ended it, which must not happen; None: there was none."""

    def run(self, main: Callable[[], object]) -> None:
        self.process.run(main(), self._ended)  # type: ignore[arg-type]

    def _ended(self, how: BaseException | int) -> None:
        if isinstance(how, BaseException):
            self.failure = how

    def client(self) -> Client:
        """A client of the library; call it in the process's loop."""
        addresses = [f"{host_of(broker)}:{CLIENT_PORT}" for broker in self._brokers]
        self.rng.shuffle(addresses)
        options = ClientOptions(request_timeout_s=REQUEST_TIMEOUT_S, retry_timeout_s=5.0)
        return Client(addresses, options, _dial, self.rng)

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=T0_US + self.world.now)


def _dial(address: str) -> BrokerChannel:
    host, _, port = address.rpartition(":")
    return BrokerChannel(address, Channel(host, int(port)))  # type: ignore[arg-type]
