"""A nats-server with or without JetStream, and three of them as one cluster."""

from __future__ import annotations

import asyncio
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bench.harness.model import Missing
from bench.harness.processes import Failed, Server, free_port
from tidelog.cli.errors import CommandError
from tidelog.cli.local.nats_server import find_nats_server, is_serving
from tidelog.cli.local.waiting import holds_within_async

T = TypeVar("T")

SERVERS = 3
STREAM_API_SECONDS_MAX = 10.0
WHOLE_SECONDS_MAX = 60.0
"""How long a cluster may take to make or complete a stream; it took five seconds after a start."""

LOOK_SECONDS = 0.1


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


class Streams(ABC):
    """Makes streams: one server, or several as one cluster."""

    replicas = 1

    @property
    @abstractmethod
    def url(self) -> str:
        """The URLs of all servers, comma-separated."""

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """The process ids of the servers."""

    def create(self, stream: str) -> None:
        """Makes a stream in files that records `<stream>.>`; returns when all its replicas are current."""
        self.ask(lambda js: _create(js, stream, self.replicas))

    def delete(self, stream: str) -> None:
        self.ask(lambda js: js.delete_stream(stream))

    def url_of(self, _stream: str) -> str:
        """The URL that a client of the stream should connect to."""
        return self.url

    def ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """The result of `work`, which gets a JetStream context of its own."""

        async def connected() -> T:
            import nats

            connection = await nats.connect(self.url.split(","))
            try:
                return await work(connection.jetstream(timeout=STREAM_API_SECONDS_MAX))
            finally:
                await connection.close()

        return asyncio.run(connected())


async def _create(js: Any, stream: str, replicas: int) -> None:
    from nats.js.api import StorageType, StreamConfig

    config = StreamConfig(
        name=stream, subjects=[f"{stream}.>"], storage=StorageType.FILE, num_replicas=replicas
    )
    if replicas == 1:
        await js.add_stream(config)
        return
    import nats.errors
    import nats.js.errors

    # A cluster refuses, or does not answer, until its leader knows all servers.
    refusal: Exception | None = None

    async def is_made() -> bool:
        nonlocal refusal
        try:
            await js.add_stream(config)
        except (nats.errors.Error, nats.js.errors.Error) as error:
            refusal = error
            return False
        return True

    if not await holds_within_async(is_made, WHOLE_SECONDS_MAX, pause=LOOK_SECONDS):
        raise Failed(f"{stream} could not be made within {WHOLE_SECONDS_MAX:g} s: {refusal}")
    await leader_when_current(js, stream, replicas)


async def leader_when_current(js: Any, stream: str, replicas: int) -> str:
    """Waits until all other replicas are current; the leader's name. Raises `Failed` after a minute."""
    import nats.errors
    import nats.js.errors

    leader = ""

    async def is_current() -> bool:
        nonlocal leader
        try:
            found = (await js.stream_info(stream)).cluster
        except (nats.errors.Error, nats.js.errors.Error):
            return False
        leader = str(found.leader or "") if found else ""
        others = (found.replicas or []) if found else []
        return bool(leader) and sum(one.current for one in others) == replicas - 1

    if not await holds_within_async(is_current, WHOLE_SECONDS_MAX, pause=LOOK_SECONDS):
        raise Failed(f"{stream} is not on {replicas} servers within {WHOLE_SECONDS_MAX:g} s")
    return leader


class NatsServer(Server, Streams):
    """One server on loopback; JetStream stores in files."""

    def __init__(
        self, folder: Path, *, jetstream: bool = True, sync_always: bool = False, cluster: str = ""
    ) -> None:
        """`cluster`: the configuration that makes it a member of a cluster."""
        super().__init__("jetstream" if jetstream else "nats", folder)
        self._jetstream = jetstream
        self._sync_always = sync_always
        self._cluster = cluster
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    def start(self) -> None:
        """Starts it, on the port of the last start if there was one."""
        self.port = self.port or free_port()
        config = self.folder / "nats.conf"
        config.write_text(self._config())
        self.launch([find_binary(), "-c", str(config)], lambda: is_serving("127.0.0.1", self.port))

    def _config(self) -> str:
        text = f"listen: 127.0.0.1:{self.port}\n{self._cluster}"
        if self._jetstream:
            sync = "sync_interval: always\n" if self._sync_always else ""
            text += f'jetstream {{ store_dir: "{self.folder}/store"\n{sync}}}\n'
        return text


class NatsCluster(Streams):
    """Three servers with routes between them; streams have three replicas."""

    replicas = SERVERS

    def __init__(self, folder: Path, *, sync_always: bool = False) -> None:
        ports = [free_port() for _ in range(SERVERS)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = {
            name: NatsServer(
                folder,
                sync_always=sync_always,
                cluster=f"server_name: {name}\n"
                f"cluster {{ name: bench, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n",
            )
            for name, port in ((f"n{number}", port) for number, port in enumerate(ports))
        }

    @property
    def url(self) -> str:
        return ",".join(server.url for server in self.servers.values())

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers.values()]

    @property
    def members(self) -> list[Server]:
        return list(self.servers.values())

    def start(self) -> None:
        for server in self.servers.values():
            server.start()
        # When a first stream can be made, the cluster is ready.
        self.create("ready")
        self.delete("ready")

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()

    def revive(self, member: Server) -> None:
        """Starts a server that has ended on its old port and data, and waits until the cluster is whole."""
        assert isinstance(member, NatsServer)
        member.start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Waits until a stream can be made and all its replicas are current."""
        self.create("whole")
        self.delete("whole")

    def leader_of(self, stream: str) -> NatsServer:
        name = self.ask(lambda js: leader_when_current(js, stream, self.replicas))
        return self.servers[name]

    def url_of(self, stream: str) -> str:
        """The leader's URL: from another server each message takes one more hop."""
        return self.leader_of(stream).url
