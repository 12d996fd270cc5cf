"""The servers of one run: each is started when a case first asks for it, and all are stopped together."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

from bench.harness.work import Effort
from bench.ours.broker import Broker
from bench.ours.cluster import Cluster
from bench.peers.jetstream.server import NatsCluster, NatsServer
from bench.peers.kafka.cluster import KafkaCluster
from bench.peers.kafka.server import Kafka


class Stoppable(Protocol):
    """A server, or several as one."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=Stoppable)
T = TypeVar("T")


class Stage:
    """One server of each kind; a context manager. Cases share the servers; each case has its own streams."""

    def __init__(self, folder: Path | None = None, effort: Effort | None = None) -> None:
        """`folder`: on the disk to measure; the default is the system's folder for temporary files."""
        self.folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=folder))
        self.effort = effort or Effort()
        self._servers: dict[str, Stoppable] = {}
        self._streams = 0
        self._found: dict[str, object] = {}

    def stream_name(self) -> str:
        """A name that no case has used."""
        self._streams += 1
        return f"bench{self._streams}"

    def broker(self, copies: int = 1) -> Broker | Cluster:
        """Ours, recording from `nats`; three brokers where streams have three copies."""
        url = self.nats().url
        if copies > 1:
            return self._one("tidelog-3", lambda: Cluster(self.folder, nats=url))
        return self._one("tidelog", lambda: Broker(self.folder, nats=url))

    def nats(self) -> NatsServer:
        """A NATS server without JetStream, for our recorder."""
        return self._one("nats", lambda: NatsServer(self.folder, jetstream=False))

    def jetstream(self, *, fsync: bool, copies: int = 1) -> NatsServer | NatsCluster:
        key = f"jetstream-{copies}-{fsync}"
        if copies > 1:
            return self._one(key, lambda: NatsCluster(self.folder, sync_always=fsync))
        return self._one(key, lambda: NatsServer(self.folder, sync_always=fsync))

    def kafka(self, copies: int = 1) -> Kafka | KafkaCluster:
        if copies > 1:
            return self._one("kafka-3", lambda: KafkaCluster(self.folder))
        return self._one("kafka", lambda: Kafka(self.folder))

    def once(self, key: str, work: Callable[[], T]) -> T:
        """The result of `work`, which runs only the first time that this key is asked for."""
        if key not in self._found:
            self._found[key] = work()
        found: T = self._found[key]  # type: ignore[assignment]
        return found

    def clear(self) -> None:
        """Stops all servers, so that they cost the next cases nothing."""
        while self._servers:
            self._servers.popitem()[1].stop()

    def _one(self, key: str, make: Callable[[], S]) -> S:
        found = self._servers.get(key)
        if found is None:
            found = self._servers[key] = make()
            try:
                found.start()
            except BaseException:
                del self._servers[key]
                found.stop()
                raise
        return found  # type: ignore[return-value]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.clear()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
