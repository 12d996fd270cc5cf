"""A nats-server with or without JetStream."""

from __future__ import annotations

import asyncio
import subprocess
from functools import cache
from pathlib import Path

from bench.model import Missing
from bench.processes import Server, free_port
from tidelog.cli._errors import CommandError
from tidelog.cli._nats_server import find_nats_server, is_serving

STREAM_API_SECONDS_MAX = 10.0


def find_binary() -> str:
    """The nats-server that `tidelog dev` would run; raises `Missing`."""
    try:
        return find_nats_server()
    except CommandError as lack:
        raise Missing(str(lack)) from None


@cache
def version() -> str:
    said = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().rpartition("v")[2]


class NatsServer(Server):
    """One server on loopback; JetStream stores in files."""

    def __init__(self, folder: Path, *, jetstream: bool = True, sync_always: bool = False) -> None:
        super().__init__("jetstream" if jetstream else "nats", folder)
        self._jetstream = jetstream
        self._sync_always = sync_always
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.port = free_port()
        config = self.folder / "nats.conf"
        config.write_text(self._config())
        self.launch([find_binary(), "-c", str(config)], lambda: is_serving("127.0.0.1", self.port))

    def _config(self) -> str:
        text = f"listen: 127.0.0.1:{self.port}\n"
        if self._jetstream:
            sync = "sync_interval: always\n" if self._sync_always else ""
            text += f'jetstream {{ store_dir: "{self.folder}/store"\n{sync}}}\n'
        return text

    def create(self, stream: str) -> None:
        """A stream in files with one replica that records `<stream>.>`."""
        asyncio.run(self._create(stream))

    async def _create(self, stream: str) -> None:
        from nats.js.api import StorageType, StreamConfig

        import nats

        connection = await nats.connect(self.url)
        try:
            await connection.jetstream(timeout=STREAM_API_SECONDS_MAX).add_stream(
                StreamConfig(name=stream, subjects=[f"{stream}.>"], storage=StorageType.FILE, num_replicas=1)
            )
        finally:
            await connection.close()

    def delete(self, stream: str) -> None:
        asyncio.run(self._delete(stream))

    async def _delete(self, stream: str) -> None:
        import nats

        connection = await nats.connect(self.url)
        try:
            await connection.jetstream(timeout=STREAM_API_SECONDS_MAX).delete_stream(stream)
        finally:
            await connection.close()
