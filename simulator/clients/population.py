"""The clients of a run: producers and readers of each partition, and clients that send one record.

Neighbours: `producers` and `readers` are the clients; `renewals` has the clients of a renewed stream.
"""

from __future__ import annotations

from typing import Any, Final

from simulator.clients.client import SimClient
from simulator.clients.producers import SimProducer, SimSingleSend
from simulator.clients.readers import SimReader
from simulator.clients.sinks import SimSink
from simulator.cluster import Cluster
from simulator.kernel.processes import unhandled
from tidelog.history import History

FIRST_SINGLE_SEND: Final = 1_000
"""The names of clients that send one record begin here, beyond the names of all other clients."""


class Population:
    """The clients of a run, and the history that they write together."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.history = History()
        self.producers: list[SimProducer] = []
        self.readers: list[SimReader] = []
        self.sinks: list[SimSink] = []
        self._single_sends: list[SimSingleSend] = []

    def __repr__(self) -> str:
        return f"<Population producers={len(self.producers)} readers={len(self.readers)}>"

    def start(self) -> None:
        """Starts the producers and readers of the plan, for each partition."""
        plan, checks = self._cluster.plan, self._cluster.checks
        names = {stream_id: stream.name for stream_id, stream in checks.image.streams.items()}
        for place, key in enumerate(self._cluster.keys):
            for index, kind in enumerate(plan.producers):
                self.producers.append(
                    SimProducer(
                        *self._client(names[key[0]], key[1], place),
                        kind=kind, pause_us=plan.produce_pause_us, impatient=plan.impatient,
                        acks_all=index != 2,
                    )
                )  # fmt: skip
            for _ in range(plan.readers):
                self.readers.append(SimReader(checks, key, *self._client(names[key[0]], key[1], place)))
            for _ in range(plan.sinks):
                client = self._client(names[key[0]], key[1], place)
                self.sinks.append(SimSink(checks, *client, pause_us=plan.produce_pause_us))

    def _client(self, stream: str, partition: int, place: int) -> tuple[Any, ...]:
        name = 1 + len(self.producers) + len(self.readers) + len(self.sinks)
        return *self._surroundings(name), stream, partition, place

    def _surroundings(self, name: int) -> tuple[Any, ...]:
        cluster = self._cluster
        return cluster.world, cluster.network, self.history, name, tuple(cluster.nodes)

    def write_to(self, stream: str) -> None:
        """Starts a client that sends one record to a stream, and ends."""
        name = FIRST_SINGLE_SEND + len(self._single_sends)
        self._single_sends.append(SimSingleSend(*self._surroundings(name), stream, 0, 0))

    def stop(self) -> None:
        """Asks the producers to send no more."""
        for producer in self.producers:
            producer.stopped = True
        for sink in self.sinks:
            sink.stopped = True

    @property
    def all(self) -> list[SimClient]:
        return [*self.producers, *self.readers, *self.sinks, *self._single_sends]

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer in self.producers)

    def raise_failures(self) -> None:
        """An error that ended a client is a bug of the client library, or of these clients."""
        for client in self.all:
            if client.failure is not None:
                raise client.failure
            if client.process.loop.errors:
                raise unhandled(f"client {client.name}", client.process.loop.errors[0])
