"""A broker process: an `assembly` with its doors, and the signals that end it (DESIGN section 7)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable

import structlog

from tidelog.model import Listener
from tidelog_broker.api.grpc_door import GrpcDoor
from tidelog_broker.api.http import HttpDoor
from tidelog_broker.assembly import Assembly, open_assembly
from tidelog_broker.config.settings import Settings
from tidelog_broker.errors import BrokerError
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.limits.collector import Collector
from tidelog_broker.limits.loop_watch import LoopWatch
from tidelog_broker.listener_addresses import parse_http, parse_listen
from tidelog_broker.platform import Platform, this_machine

log = structlog.get_logger(__name__)

FAILED_SECONDS_MAX = 5.0
"""How long a broker whose disk failed may take to write its mark and end."""

LINGER_SECONDS = 0.1
"""How long calls are still accepted, and refused, once nothing is written any more."""

GRACE_SECONDS = 0.5
"""How long open calls may take to end once everything is committed."""


class Service:
    """One broker process: it starts, waits and stops."""

    def __init__(self, settings: Settings, platform: Platform | None = None) -> None:
        """`platform`: None is the operating system."""
        self._settings = settings
        self._platform = platform or this_machine()
        self.listeners: list[Listener] = []
        """The addresses in use, with the ports that were bound."""
        self.serving = False
        """Everything is up."""
        self.http_port: int | None = None
        self._http: HttpDoor | None = None
        self._door: GrpcDoor | None = None
        self._watch: LoopWatch | None = None
        self.assembly: Assembly
        """The broker behind the doors, once `start` has opened it."""

    @property
    def broker(self) -> Broker:
        return self.assembly.broker

    @property
    def over(self) -> asyncio.Future[BrokerError]:
        """Done when this run must not go on, although its disk works."""
        return self.assembly.over

    async def start(self) -> None:
        """Opens the data directory and serves; raises `BrokerError` or OSError with a sentence."""
        self.assembly = await open_assembly(self._settings, self._platform)
        try:
            await self._serve()
        except BaseException:
            if self._http is not None:
                self._http.stop()
            if self._door is not None:
                await self._door.stop(0)
            await self.assembly.close()
            self._end_watch()
            raise

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    async def _serve(self) -> None:
        settings, assembly = self._settings, self.assembly
        metrics = assembly.broker.metrics
        self._watch = LoopWatch(metrics.loop_was_late)
        self._watch.start()
        door = self._door = GrpcDoor(
            assembly.services,
            calls_max=settings.connections_max,
            client_calls_max=settings.client_calls_max,
            message_bytes_max=settings.message_bytes_max,
            observe=lambda rpc, code: metrics.calls.labels(rpc, code).inc(),
            control=assembly.access_control,
            tls=assembly.encryption.clients,
        )
        # Addresses first: an address that is in use must not cost the clean-stop mark.
        bound = [_bind(door, spec, assembly.directory.broker_id) for spec in settings.listeners]
        self._bind_http()
        self.listeners = await assembly.start(bound)
        await door.start()
        await door.set_serving(True)
        self.serving = True
        if self.http_port is not None:
            log.info("serving HTTP", address=f"{parse_http(settings.http)[0]}:{self.http_port}")
        for listener in self.listeners:
            log.info("listening", address=listener.target, listener=listener.name)

    def _bind_http(self) -> None:
        """It answers from here on; `/readyz` answers 503 until the broker serves."""
        if not self._settings.http:
            return
        host, port, tls = parse_http(self._settings.http)
        broker = self.assembly.broker
        try:
            self._http = HttpDoor(
                host,
                port,
                broker.metrics,
                ready=broker.readiness.reason,
                state=self.assembly.state,
                connections_max=self._settings.http_connections_max,
                seconds_max=self._settings.http_timeout_ms / 1000,
                control=self.assembly.access_control,
                tls=self.assembly.encryption.clients.get(tls),
            )
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port} for HTTP: {error.strerror}") from error
        self.http_port = self._http.port
        self._http.start()

    async def stop(self) -> None:
        """Commits what was sent, and writes the clean-stop mark."""
        log.info("stopping")
        assert self._door is not None, "it was started"
        if not self.broker.failed.done():
            await self._door.set_serving(False)
        await self.assembly.stop()
        # Calls that are in the socket already get the reason of their failure, and are not cut off.
        await asyncio.sleep(LINGER_SECONDS)
        await self._door.stop(GRACE_SECONDS)
        if self._http is not None:
            self._http.stop()
        await self.assembly.close()
        self._end_watch()
        log.info("stopped")

    def mark_failed(self) -> None:
        """Writes the mark that keeps a broker from starting after a failed flush."""
        self.assembly.mark_failed()


async def serve(settings: Settings) -> int:
    """Runs a broker until SIGTERM or SIGINT; the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await run_until(Service(settings), stop, on_started=Collector().start, on_failed=_end_in_time)


async def run_until(
    service: Service,
    stop: asyncio.Event,
    *,
    on_started: Callable[[], None] = lambda: None,
    on_failed: Callable[[], None] = lambda: None,
) -> int:
    """Runs a broker until `stop` is set or its storage fails; 0, or 1 after a failure.

    Raises `RunOver` or `DirectoryDamaged` if its run had to end although its disk works.

    `on_started` is called when it serves, `on_failed` at once when it fails: the following steps may hang on
    the broken disk.
    """
    starting, stopped = asyncio.create_task(service.start()), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not starting.done():
        # It still waits for its cluster, and is told to stop.
        starting.cancel()
        await asyncio.wait([starting])
        if starting.cancelled():
            return 0
    starting.result()
    on_started()
    failed = service.broker.failed
    failed.add_done_callback(lambda done: stop.set())
    service.over.add_done_callback(lambda done: stop.set())
    await stop.wait()
    marked = failed.done()
    if marked:
        on_failed()
        service.mark_failed()
    await service.stop()
    if failed.done() and not marked:
        service.mark_failed()
    if service.over.done() and not failed.done():
        raise service.over.result()
    return 1 if failed.done() else 0


def _end_in_time() -> None:
    """Ends the process of a failed broker in time, whatever its disk does."""
    timer = threading.Timer(FAILED_SECONDS_MAX, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _bind(door: GrpcDoor, spec: str, broker_id: int) -> Listener:
    try:
        name, host, port, shown_host, shown_port, tls = parse_listen(spec, broker_id)
    except ValueError as error:
        # A listener that is valid for broker 0 may not be valid for this one.
        raise BrokerError(str(error)) from None
    bound = door.listen(host, port, tls)
    return Listener(name, shown_host, shown_port or bound)
