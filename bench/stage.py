"""The servers of one run, started when first asked for and stopped together."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.ours.broker import Broker
from bench.peers.jetstream.server import NatsServer
from bench.peers.kafka.server import Kafka
from bench.processes import Server


class Stage:
    """One of each server; a context manager. Cases share them, one stream each."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: on the disk to be measured; the default is the system's for temporary files."""
        self.folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=folder))
        self._servers: dict[str, Server] = {}
        self._streams = 0

    def stream_name(self) -> str:
        """A name that no case has used."""
        self._streams += 1
        return f"bench{self._streams}"

    def broker(self) -> Broker:
        """Ours, recording from `nats`."""
        found = self._servers.get("tidelog")
        if found is None:
            found = self._started("tidelog", Broker(self.folder, nats=self.nats().url))
        assert isinstance(found, Broker)
        return found

    def nats(self) -> NatsServer:
        """A NATS server without JetStream, for our recorder."""
        return self._nats("nats", NatsServer(self.folder, jetstream=False))

    def jetstream(self, *, fsync: bool) -> NatsServer:
        if fsync:
            return self._nats("jetstream-fsync", NatsServer(self.folder, sync_always=True))
        return self._nats("jetstream", NatsServer(self.folder))

    def kafka(self) -> Kafka:
        found = self._servers.get("kafka")
        if found is None:
            found = self._started("kafka", Kafka(self.folder))
        assert isinstance(found, Kafka)
        return found

    def _nats(self, key: str, server: NatsServer) -> NatsServer:
        found = self._servers.get(key) or self._started(key, server)
        assert isinstance(found, NatsServer)
        return found

    def _started(self, key: str, server: Broker | NatsServer | Kafka) -> Server:
        self._servers[key] = server
        try:
            server.start()
        except BaseException:
            del self._servers[key]
            server.stop()
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            while self._servers:
                self._servers.popitem()[1].stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
