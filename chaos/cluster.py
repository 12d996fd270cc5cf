"""Broker processes, each behind its proxy, and the NATS server: what faults befall."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from chaos.clocks import faked_clock
from chaos.links import Links
from chaos.proxy import Proxy
from tidelog.cli.local.nats_server import find_nats_server, is_serving
from tidelog.cli.local.processes import Child, free_ports, python_module, start

HOST: Final = "127.0.0.1"
READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0
LOOK_SECONDS: Final = 0.05
SCRUB_MS: Final = 5_000
SCRUB_BYTES_PER_SECOND: Final = 64 << 20


class ClusterFailure(Exception):
    """The cluster does not do what it must, whatever went wrong before."""


class Cluster:
    """See the module. Of one event loop, in the main thread."""

    def __init__(
        self, folder: Path, count: int, *, begin: int, plant: str = "", faketime: Path | None = None
    ) -> None:
        """`count`: brokers that there are room and ports for; `begin`: how many of them start. `faketime`:
        libfaketime, so that `set_clock` can be called; None: all clocks are this machine's."""
        ports = free_ports(1 + 4 * count)
        self.folder = folder
        self.brokers = tuple(range(begin))
        """The members of now, running or not."""
        self.links = Links()
        self._plant = plant
        self._faketime = faketime
        self._nats_port = ports[0]
        self._grpc = ports[1 : 1 + count]
        self._http = ports[1 + count : 1 + 2 * count]
        self._peers = ports[1 + 2 * count : 1 + 3 * count]
        shown = ports[1 + 3 * count :]
        self.proxies = [
            Proxy(broker, shown[broker], self._peers[broker], self.links) for broker in range(count)
        ]
        self._children: dict[int, Child] = {}
        self._nats: Child | None = None
        self._down: set[int] = set()
        """Brokers that are not running because a fault wanted it so."""
        self._log_sizes: dict[int, int] = {}
        """Of each broker's log, when its process was started."""
        self.ended: list[str] = []
        """Sentences about brokers that ended by themselves."""

    @property
    def servers(self) -> list[str]:
        """Of the members, for clients."""
        return [self.server(broker) for broker in self.brokers]

    def server(self, broker: int) -> str:
        return f"{HOST}:{self._grpc[broker]}"

    @property
    def nats(self) -> str:
        return f"nats://{HOST}:{self._nats_port}"

    async def start(self) -> None:
        """Formats the first data directory; returns when everybody serves."""
        argv = [find_nats_server(), "-a", HOST, "-p", str(self._nats_port)]
        self._nats = start("NATS server", argv, self.folder / "nats.log")
        ready = functools.partial(is_serving, HOST, self._nats_port)
        await asyncio.to_thread(self._nats.wait_ready, ready, READY_SECONDS_MAX)
        await asyncio.to_thread(
            subprocess.run,
            python_module("tidelog_broker", "format", "--data-dir", str(self.data(0))),
            check=True,
            capture_output=True,
        )
        for broker in self.brokers:
            self._write_settings(broker)
            await self.launch(broker)
        for broker in self.brokers:
            await self.ready(broker)

    async def join(self, broker: int) -> None:
        """A broker more, with an empty disk, that knows those which are there."""
        self.brokers = (*self.brokers, broker)
        self._write_settings(broker)
        await self.launch(broker)
        await self.ready(broker)

    async def leave(self, broker: int) -> None:
        """A broker fewer: it stops for good."""
        await self.stop(broker)
        self.brokers = tuple(other for other in self.brokers if other != broker)

    def _write_settings(self, broker: int) -> None:
        settings = {
            "data_dir": str(self.data(broker)),
            "broker_id": broker,
            "listeners": [f"internal={HOST}:{self._grpc[broker]}"],
            "http": f"{HOST}:{self._http[broker]}",
            "peer_listener": f"{HOST}:{self._peers[broker]}@{HOST}:{self.proxies[broker].port}",
            "seeds": ",".join(
                f"{HOST}:{self.proxies[other].port}" for other in self.brokers if other != broker
            ),
            "nats": self.nats,
            # So that what rots is found while a run lasts.
            "scrub_interval_ms": SCRUB_MS,
            "scrub_bytes_per_second": SCRUB_BYTES_PER_SECOND,
        }
        # JSON is YAML.
        self._settings(broker).write_text(json.dumps(settings, indent=1))

    def _settings(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.yaml"

    def data(self, broker: int) -> Path:
        """A broker's data directory."""
        return self.folder / f"broker-{broker}"

    # --- processes

    async def launch(self, broker: int) -> None:
        """Starts a broker and does not wait."""
        argv = python_module("chaos.broker", "--config", str(self._settings(broker)))
        argv += ["--parent", str(os.getpid()), *(["--plant", self._plant] if self._plant else [])]
        await self.proxies[broker].open()
        self._log_sizes[broker] = self._log_size(broker)
        environment = dict(os.environ)
        if self._faketime is not None:
            if not self._clock(broker).exists():
                self.set_clock(broker, 0)
            environment |= faked_clock(self._faketime, self._clock(broker))
        self._children[broker] = _started(f"broker {broker}", argv, self._log(broker), environment)
        self._down.discard(broker)

    def running(self, broker: int) -> bool:
        return broker in self._children and self._children[broker].running

    async def ready(self, broker: int) -> None:
        """Waits until a broker serves; raises `ClusterFailure`."""
        await self._until(
            lambda: self._is_ready(broker), f"broker {broker} serves", READY_SECONDS_MAX, broker
        )

    async def ready_or_ended(self, broker: int) -> int | None:
        """Waits until a broker serves, None, or has ended by itself, which it may: the exit code."""
        with contextlib.suppress(ClusterFailure):
            await self.ready(broker)
            return None
        child = self._children[broker]
        if child.running:
            raise ClusterFailure(f"not within {READY_SECONDS_MAX:g} s: broker {broker} serves or ends")
        self._down.add(broker)
        return int(child.process.returncode)

    def set_clock(self, broker: int, days: int) -> None:
        """A broker's clock is so far off from now on, in this run of its process and in later ones."""
        # In one step: it is read at any time.
        new = self._clock(broker).with_suffix(".new")
        new.write_text(f"{days * 86_400:+d}\n")
        new.replace(self._clock(broker))

    def _clock(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.clock"

    async def _is_ready(self, broker: int) -> bool:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._http[broker])
            writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
            answer = await asyncio.wait_for(reader.readline(), 2)
            writer.close()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in answer

    async def _until(
        self, condition: Callable[[], Awaitable[bool]], what: str, seconds: float, broker: int
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await condition():
            if not self.running(broker):
                raise ClusterFailure(f"{self._children[broker].name} {self._children[broker].how_it_ended()}")
            if loop.time() > deadline:
                raise ClusterFailure(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(LOOK_SECONDS)

    async def kill(self, broker: int) -> None:
        self._note_unwanted(broker)
        self._down.add(broker)
        child = self._children[broker]
        if child.running:
            os.kill(child.process.pid, signal.SIGKILL)
        await self._gone(broker)

    async def stop(self, broker: int) -> None:
        """In good order; raises `ClusterFailure` if it does not end, or ends with an error."""
        self._note_unwanted(broker)
        self._down.add(broker)
        child = self._children[broker]
        if not self.running(broker):
            return
        child.process.terminate()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_SECONDS_MAX
        while self.running(broker):
            if loop.time() > deadline:
                raise ClusterFailure(f"broker {broker} did not stop within {STOP_SECONDS_MAX:g} s")
            await asyncio.sleep(LOOK_SECONDS)
        await self._gone(broker)
        unbegun = child.process.returncode == -signal.SIGTERM and (
            self._log_size(broker) == self._log_sizes[broker]
        )
        # Before it can be told to stop it has touched nothing, and says nothing.
        if child.process.returncode != 0 and not unbegun:
            self.ended.append(f"broker {broker} was told to stop and {child.how_it_ended()}")

    def _log(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.log"

    def _log_size(self, broker: int) -> int:
        return self._log(broker).stat().st_size if self._log(broker).exists() else 0

    async def _gone(self, broker: int) -> None:
        child = self._children[broker]
        await asyncio.to_thread(child.process.wait)
        hang_up(child)
        await self.proxies[broker].refuse()

    def freeze(self, broker: int) -> None:
        self._children[broker].process.send_signal(signal.SIGSTOP)

    def thaw(self, broker: int) -> None:
        self._children[broker].process.send_signal(signal.SIGCONT)

    def tell_disk(self, broker: int, line: str) -> None:
        """What a broker's disk is like from now on; a new process begins with a sound one."""
        stdin = self._children[broker].process.stdin
        assert stdin is not None
        # One that ended by itself meanwhile is noticed by `revive`.
        with contextlib.suppress(BrokenPipeError, ValueError):
            stdin.write(f"{line}\n".encode())
            stdin.flush()

    async def erase(self, broker: int) -> None:
        """The disk of a broker that is down is lost."""
        assert not self.running(broker)
        await asyncio.to_thread(shutil.rmtree, self.data(broker))

    async def revive(self) -> None:
        """Starts what ended by itself, and says so."""
        for broker in self.brokers:
            if not self.running(broker):
                self._note_unwanted(broker)
                await self._gone(broker)
                await self.launch(broker)

    def _note_unwanted(self, broker: int) -> None:
        if not self.running(broker) and broker not in self._down:
            self._down.add(broker)
            self.ended.append(f"broker {broker} {self._children[broker].how_it_ended()}")

    async def close(self) -> None:
        """Ends everything that was started."""
        for child in self._children.values():
            if child.running:
                child.process.kill()
            child.process.wait()
            hang_up(child)
        if self._nats is not None:
            self._nats.stop(5.0)
        for proxy in self.proxies:
            await proxy.close()


def hang_up(child: Child) -> None:
    """It has ended, perhaps without having read the last line that it was told."""
    assert child.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.process.stdin.close()


def _started(name: str, argv: list[str], path: Path, environment: dict[str, str]) -> Child:
    """A process that obeys lines; without a function of ours between fork and exec, as gRPC runs here."""
    with path.open("ab") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0, env=environment
        )
    return Child(name, process, path)
