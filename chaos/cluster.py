"""The broker processes, each behind its proxy, and the NATS server. Faults act on them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

import psutil

from chaos.clocks import faked_clock
from chaos.links import Links
from chaos.proxy import Proxy
from chaos.trust import Trust
from tidelog.cli.local.nats_server import find_nats_server, is_serving
from tidelog.cli.local.processes import Child, free_ports, python_module, start
from tidelog.cli.local.waiting import holds_within_async

HOST: Final = "127.0.0.1"
READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0
LOOK_SECONDS: Final = 0.05
SCRUB_MS: Final = 5_000
SCRUB_BYTES_PER_SECOND: Final = 64 << 20


class ClusterFailure(Exception):
    """The cluster does not do what it must do in spite of all faults."""


class Cluster:
    """Starts and ends the processes of one run. For one event loop, in the main thread."""

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        begin: int,
        plant: str = "",
        faketime: Path | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`count`: how many brokers have ports and a folder; `begin`: how many of them start. `faketime`:
        libfaketime, for `set_clock`; None: all brokers use this machine's clock. `trust`: None: without TLS
        and authentication."""
        ports = free_ports(1 + 4 * count)
        self.folder = folder
        self.brokers = tuple(range(begin))
        """The present members of the cluster, running or not."""
        self.links = Links()
        self._plant = plant
        self._faketime = faketime
        self._trust = trust
        self._nats_port = ports[0]
        self._grpc = ports[1 : 1 + count]
        self._http = ports[1 + count : 1 + 2 * count]
        self._peers = ports[1 + 2 * count : 1 + 3 * count]
        shown = ports[1 + 3 * count :]
        self.proxies = [
            Proxy(
                broker,
                shown[broker],
                self._peers[broker],
                self.links,
                dialer_at=None if trust is None else self._dialer_at,
            )
            for broker in range(count)
        ]
        self._children: dict[int, Child] = {}
        self._nats: Child | None = None
        self._down: set[int] = set()
        """Brokers that do not run because a fault ended them."""
        self.ended: list[str] = []
        """Sentences about brokers that ended without a fault."""

    @property
    def servers(self) -> list[str]:
        """The members' addresses for clients."""
        return [self.server(broker) for broker in self.brokers]

    def server(self, broker: int) -> str:
        return f"{HOST}:{self._grpc[broker]}"

    @property
    def nats(self) -> str:
        return f"nats://{HOST}:{self._nats_port}"

    async def start(self) -> None:
        """Formats the first data directory, starts all members, and returns when all serve."""
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
        """Adds a broker with an empty disk; its seeds are the present members."""
        self.brokers = (*self.brokers, broker)
        self._write_settings(broker)
        await self.launch(broker)
        await self.ready(broker)

    async def leave(self, broker: int) -> None:
        """Stops a broker for good."""
        await self.stop(broker)
        self.brokers = tuple(other for other in self.brokers if other != broker)

    def _write_settings(self, broker: int) -> None:
        settings = {
            "data_dir": str(self.data(broker)),
            "broker_id": broker,
            "listeners": [f"internal={HOST}:{self._grpc[broker]}{'?tls=mutual' if self._trust else ''}"],
            "http": f"{HOST}:{self._http[broker]}",
            "peer_listener": f"{HOST}:{self._peers[broker]}@{HOST}:{self.proxies[broker].port}",
            "seeds": ",".join(
                f"{HOST}:{self.proxies[other].port}" for other in self.brokers if other != broker
            ),
            "nats": self.nats,
            # Fast enough to find a rotten segment before the run ends.
            "scrub_interval_ms": SCRUB_MS,
            "scrub_bytes_per_second": SCRUB_BYTES_PER_SECOND,
            **({} if self._trust is None else self._trust.settings(broker)),
        }
        # JSON is YAML.
        self._settings(broker).write_text(json.dumps(settings, indent=1))

    def _dialer_at(self, port: int) -> int | None:
        """The broker that dialed from this port; None: it is gone already."""
        for broker, child in self._children.items():
            if not child.running:
                continue
            with contextlib.suppress(psutil.Error):
                for one in psutil.Process(child.process.pid).net_connections("tcp"):
                    if one.laddr and one.laddr.port == port:
                        return broker
        return None

    def _settings(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.yaml"

    def data(self, broker: int) -> Path:
        """A broker's data directory."""
        return self.folder / f"broker-{broker}"

    # --- processes

    async def launch(self, broker: int) -> None:
        """Starts a broker. Does not wait until it serves."""
        argv = python_module("chaos.broker", "--config", str(self._settings(broker)))
        argv += ["--plant", self._plant] if self._plant else []
        await self.proxies[broker].open()
        environment = dict(os.environ)
        if self._faketime is not None:
            if not self._clock(broker).exists():
                self.set_clock(broker, 0)
            environment |= faked_clock(self._faketime, self._clock(broker))
        self._children[broker] = start(
            f"broker {broker}", argv, self._log(broker), env=environment, stdin=subprocess.PIPE
        )
        self._down.discard(broker)

    def running(self, broker: int) -> bool:
        return broker in self._children and self._children[broker].running

    async def ready(self, broker: int) -> None:
        """Waits until a broker serves. Raises `ClusterFailure` if it does not, or if it ends."""

        async def is_ready_or_ended() -> bool:
            return await self._is_ready(broker) or not self.running(broker)

        in_time = await holds_within_async(is_ready_or_ended, READY_SECONDS_MAX, pause=LOOK_SECONDS)
        if not self.running(broker):
            raise ClusterFailure(f"Broker {broker} {self._children[broker].how_it_ended()}")
        if not in_time:
            raise ClusterFailure(
                f"Broker {broker} did not serve within {READY_SECONDS_MAX:g} s of its start. "
                f"Its log: {self._log(broker)}"
            )

    async def ready_or_ended(self, broker: int) -> int | None:
        """Waits until a broker serves (None), or has ended, which is no error here (its exit code)."""
        with contextlib.suppress(ClusterFailure):
            await self.ready(broker)
            return None
        child = self._children[broker]
        if child.running:
            raise ClusterFailure(f"Broker {broker} neither served nor ended within {READY_SECONDS_MAX:g} s.")
        self._down.add(broker)
        return int(child.process.returncode)

    def set_clock(self, broker: int, days: int) -> None:
        """Makes a broker's clock wrong by so many days, in this run of its process and in later runs."""
        # The file is replaced in one step, because libfaketime may read it at any time.
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

    async def kill(self, broker: int) -> None:
        self._note_unwanted(broker)
        self._down.add(broker)
        child = self._children[broker]
        if child.running:
            child.send_signal(signal.SIGKILL)
        await self._gone(broker)

    async def stop(self, broker: int) -> None:
        """Stops a broker in good order (SIGTERM). Raises `ClusterFailure` if it does not end.

        An end with an error is noted in `ended`.
        """
        self._note_unwanted(broker)
        self._down.add(broker)
        child = self._children[broker]
        if not self.running(broker):
            return
        child.ask_to_stop()
        if not await holds_within_async(lambda: not child.running, STOP_SECONDS_MAX, pause=LOOK_SECONDS):
            raise ClusterFailure(f"Broker {broker} did not stop within {STOP_SECONDS_MAX:g} s of SIGTERM.")
        await self._gone(broker)
        unbegun = child.process.returncode == -signal.SIGTERM and not child.output()
        # SIGTERM before its handler is installed kills the process. It has then changed and logged nothing.
        if child.process.returncode != 0 and not unbegun:
            self.ended.append(f"Broker {broker} got SIGTERM and {child.how_it_ended()}")

    def _log(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.log"

    async def _gone(self, broker: int) -> None:
        child = self._children[broker]
        await asyncio.to_thread(child.process.wait)
        hang_up(child)
        await self.proxies[broker].refuse()

    def freeze(self, broker: int) -> None:
        self._children[broker].send_signal(signal.SIGSTOP)

    def thaw(self, broker: int) -> None:
        self._children[broker].send_signal(signal.SIGCONT)

    def tell_disk(self, broker: int, line: str) -> None:
        """Sends a broker's disk a line (`disk.DiskState`). A new process begins with a sound disk."""
        stdin = self._children[broker].process.stdin
        assert stdin is not None
        # `revive` notices a broker that has ended meanwhile.
        with contextlib.suppress(BrokenPipeError, ValueError):
            stdin.write(f"{line}\n".encode())
            stdin.flush()

    async def erase(self, broker: int) -> None:
        """Deletes the data directory of a broker that is down."""
        assert not self.running(broker)
        await asyncio.to_thread(shutil.rmtree, self.data(broker))

    async def revive(self) -> None:
        """Starts brokers that ended without a fault, and notes them in `ended`."""
        for broker in self.brokers:
            if not self.running(broker):
                self._note_unwanted(broker)
                await self._gone(broker)
                await self.launch(broker)

    def _note_unwanted(self, broker: int) -> None:
        if not self.running(broker) and broker not in self._down:
            self._down.add(broker)
            self.ended.append(f"Broker {broker} {self._children[broker].how_it_ended()}")

    async def close(self) -> None:
        """Ends all processes and proxies."""
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
    """Closes the standard input of a process that ended, perhaps before it read its last line."""
    assert child.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.process.stdin.close()
