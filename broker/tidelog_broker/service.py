"""The composition root: builds the parts in order, stops them in reverse (DESIGN section 7)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog

from tidelog.model import Listener, id_text
from tidelog_broker.api.admin_service import AdminService
from tidelog_broker.api.grpc_door import GrpcDoor
from tidelog_broker.api.http import HttpDoor
from tidelog_broker.api.log_service import LogService
from tidelog_broker.api.metadata_service import MetadataService
from tidelog_broker.config import Settings, parse_address, parse_listen
from tidelog_broker.core.metadata.registration import Registration
from tidelog_broker.errors import BrokerError
from tidelog_broker.nats.connection import Connection
from tidelog_broker.nats.recorder import Recorder
from tidelog_broker.nats.settings import Settings as NatsSettings
from tidelog_broker.runtime.broker import Broker, BrokerLimits
from tidelog_broker.runtime.clock import Clock, system_clock
from tidelog_broker.runtime.control_neighbours import PEER_LISTENER
from tidelog_broker.runtime.formation import beginning, until_formatted
from tidelog_broker.runtime.formatting import format_joiner, format_solo
from tidelog_broker.runtime.handing_over import HandingOver
from tidelog_broker.runtime.loop_watch import LoopWatch
from tidelog_broker.runtime.quorum_controller import QuorumController, QuorumOptions
from tidelog_broker.runtime.quorum_opening import open_quorum_controller
from tidelog_broker.runtime.quorum_peers import QuorumPeers
from tidelog_broker.storage.data_directory import DataDirectory
from tidelog_broker.storage.files import Files, OsFiles, Volume
from tidelog_broker.storage.store import LogStore
from tidelog_broker.storage.volume_flush import judge_here
from tidelog_proto import admin_pb2, log_pb2, metadata_pb2

log = structlog.get_logger(__name__)

FAILED_SECONDS_MAX = 5.0
"""How long a broker whose disk failed may take to leave its mark and end."""

LINGER_SECONDS = 0.1
"""How long calls are still taken, and refused, once nothing is written any more."""

SEED_PAUSE_SECONDS = 0.5
"""Between two rounds of asking seeds for the id of their cluster."""

GRACE_SECONDS = 0.5
"""How long open calls may take to end once everything is committed."""


class Service:
    """A broker process: start, wait, stop."""

    def __init__(
        self, settings: Settings, *, files: Files | None = None, clock: Clock = system_clock
    ) -> None:
        """`files` and `clock` are the operating system's unless a test gives others."""
        self._settings = settings
        self._files = files or OsFiles()
        self._clock = clock
        self.listeners: list[Listener] = []
        """The addresses in use, with the ports that were bound."""
        self.serving = False
        """Everything is up."""
        self._stopping = False
        self.http_port: int | None = None
        self._http: HttpDoor | None = None
        self._door: GrpcDoor | None = None
        self._connection: Connection | None = None
        self._recorder: Recorder | None = None
        self._controller: QuorumController | None = None
        self._peers: QuorumPeers | None = None
        self._handing_over: HandingOver | None = None
        self._watch: LoopWatch | None = None
        self._formation: asyncio.Task[None] | None = None
        """Waits until the marker says that the cluster was formed."""
        self._volume: Volume | None = None
        """Of the data directory, if one flush of it may stand for those of many files."""

    async def start(self) -> None:
        """Opens the data directory and serves; raises `BrokerError` or OSError with a sentence."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        self._metadata_thread = ThreadPoolExecutor(1, "tidelog-metadata")
        await self._join()
        self._directory = await loop.run_in_executor(
            self._metadata_thread,
            lambda: DataDirectory.open(
                self._files, str(settings.data_dir.resolve()), broker_id=settings.broker_id,
                reserve_bytes=settings.disk_reserve_bytes,
            ),
        )  # fmt: skip
        try:
            await self._serve()
        except BaseException:
            if self._http is not None:
                self._http.stop()
            if self._door is not None:
                await self._door.stop(0)
            await self._leave_marker()
            if self._controller is not None:
                await self._controller.close()
            self._close_directory()
            self._end_watch()
            raise

    async def _join(self) -> None:
        """An empty folder becomes the data directory of a broker of the seeds' cluster, or its first (M1)."""
        settings, path = self._settings, str(self._settings.data_dir.resolve())
        if settings.seeds and not settings.peer_listener:
            raise BrokerError("seeds are of no use without a peer listener; give --peer-listener")
        if not settings.seeds and not settings.formation:
            return
        if DataDirectory.is_formatted(self._files, path):
            return
        if settings.broker_id is None:
            raise BrokerError(
                f"{path} is empty, and a broker that joins a cluster needs an id; give --broker-id"
            )
        broker_id = settings.broker_id
        marker = Path(settings.formation) if settings.formation else None
        cluster_id, forms = await beginning(_seeds(settings), broker_id, SEED_PAUSE_SECONDS, marker)
        make = format_solo if forms else format_joiner
        make(self._files, path, cluster_id=cluster_id, broker_id=broker_id, directory_id=uuid4().bytes)
        what = "forming a cluster" if forms else "joining a cluster"
        log.info(what, cluster=id_text(cluster_id), broker=broker_id)

    async def _serve(self) -> None:
        settings, directory = self._settings, self._directory
        self._open_volume()
        controller = self._controller = open_quorum_controller(
            directory,
            self._metadata_thread,
            fail=self._fail,
            options=QuorumOptions(
                voters_wanted=settings.voters, seeds=_seeds(settings), formed=not settings.formation
            ),
        )
        if settings.formation:
            self._formation = asyncio.create_task(self._until_formed(controller, Path(settings.formation)))
        store = LogStore(
            self._files,
            directory.path,
            open_files_max=settings.open_files_max,
            tail_cache_bytes_max=settings.tail_cache_bytes_max,
            volume=self._volume,
        )
        broker = self.broker = Broker(
            directory.broker_id,
            store,
            controller,
            self._clock,
            _limits(settings),
            directory.reserve,
            controller.incarnation,
        )
        self._watch = LoopWatch(broker.metrics.loop_was_late)
        self._watch.start()
        if settings.peer_listener:
            self._peers = QuorumPeers(controller)
            self._peers.join(broker, random.Random())
        admin = AdminService(broker, controller)
        controller.serve_calls(admin.serve_call)
        membership = controller.membership
        membership.on_session = self._session
        membership.damaged = broker.damaged_replicas
        self._handing_over = HandingOver(broker.partitions, membership.settled)
        membership.on_wishes = self._handing_over.wished
        membership.clock_skew_us_max = settings.clock_skew_max_ms * 1000
        membership.on_clock = lambda skew_us: broker.metrics.clock_skew.set(skew_us / 1e6)
        door = self._door = GrpcDoor(
            [
                (metadata_pb2.DESCRIPTOR.services_by_name["Metadata"], MetadataService(controller)),
                (log_pb2.DESCRIPTOR.services_by_name["Log"], LogService(broker)),
                (admin_pb2.DESCRIPTOR.services_by_name["Admin"], admin),
            ],
            calls_max=settings.connections_max,
            observe=lambda rpc, code: broker.metrics.calls.labels(rpc, code).inc(),
        )
        # Addresses first: one that is taken must not cost the clean-stop mark.
        self.listeners = [_bind(door, spec, directory.broker_id) for spec in settings.listeners]
        self._bind_http()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._metadata_thread, directory.reserve.restore)
        await self._listen_for_peers(controller)
        await controller.start()
        await broker.open_logs(same_boot=directory.same_boot)
        await self._register(controller)
        broker.start()
        await broker.applied(controller.image.version)
        await self._start_nats()
        await door.start()
        await door.set_serving(True)
        self.serving = True
        if self.http_port is not None:
            log.info("serving HTTP", address=f"{parse_address(settings.http)[0]}:{self.http_port}")
        for listener in self.listeners:
            log.info("listening", address=listener.target, listener=listener.name)

    async def _until_formed(self, controller: QuorumController, marker: Path) -> None:
        """Has the only voter get company once the marker says that the cluster was formed (M1)."""
        await until_formatted(marker, self._directory.cluster_id, self._metadata_thread)
        controller.formed = True

    async def _leave_marker(self) -> None:
        if self._formation is not None:
            self._formation.cancel()
            await asyncio.gather(self._formation, return_exceptions=True)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _open_volume(self) -> None:
        """Before anything is written: what fails earlier would be told to nobody (DESIGN 4.3)."""
        path = self._directory.path
        judgement = judge_here(self._settings.syncfs, path)
        if judgement.safe:
            self._volume = self._files.open_volume(path)
        say = log.warning if self._settings.syncfs == "on" and not judgement.safe else log.info
        way = "by one syncfs" if judgement.safe else "one by one"
        say("how many files at once are flushed", way=way, reason=judgement.reason)

    def _close_directory(self) -> None:
        if self._volume is not None:
            self._volume.close()
        self._directory.close()

    async def _listen_for_peers(self, controller: QuorumController) -> None:
        if not self._settings.peer_listener:
            return
        _, host, port, shown_host, shown_port = parse_listen(self._settings.peer_listener)
        bound = await controller.listen(host, port)
        controller.neighbours.address = (shown_host, shown_port or bound)
        # Last: clients without another wish take the first.
        self.listeners.append(Listener(PEER_LISTENER, *controller.neighbours.address))

    async def _register(self, controller: QuorumController) -> None:
        """Tells the metadata log of this run: it leads in new epochs from here on (R10)."""
        directory = self._directory
        loop = asyncio.get_running_loop()
        starts = await loop.run_in_executor(self._metadata_thread, directory.record_start)
        await controller.register(
            Registration(
                cluster_id=directory.cluster_id,
                broker_id=directory.broker_id,
                incarnation=controller.incarnation,
                directory_id=directory.directory_id,
                listeners=tuple(self.listeners),
                rack=self._settings.rack,
                starts=starts,
                suspects=self.broker.suspects(),
                lost=self.broker.lost_replicas(),
            )
        )

    def _fail(self, error: BaseException) -> None:
        self.broker.fail(error)

    async def _start_nats(self) -> None:
        urls = tuple(url.strip() for url in self._settings.nats.split(",") if url.strip())
        if not urls:
            return
        self._connection = Connection(
            NatsSettings(servers=urls, name=self._settings.nats_name),
            random.Random(),
            on_connected=lambda server: log.info("connected to NATS", server=server),
            on_disconnected=self._nats_lost,
        )
        assert self._controller is not None, "it was opened before"
        self._recorder = Recorder(self.broker, self._connection)
        self._session(self._controller.session_good())
        self.broker.listen(self._recorder)
        self._connection.start()

    def _session(self, good: bool) -> None:
        """A broker without peers goes on: nobody else can lead what it leads (N5)."""
        if self._peers is None:
            return
        self.broker.session(good)
        if self._recorder is not None:
            self._recorder.session(good)

    def _nats_lost(self, reason: str) -> None:
        say = log.info if self._stopping else log.warning
        say("disconnected from NATS", reason=reason)

    def _bind_http(self) -> None:
        """From here on it answers; `/readyz` says no until the broker serves."""
        if not self._settings.http:
            return
        host, port = parse_address(self._settings.http)
        try:
            self._http = HttpDoor(
                host,
                port,
                self.broker.metrics,
                ready=self.broker.readiness.reason,
                state=self._state,
            )
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port} for HTTP: {error.strerror}") from error
        self.http_port = self._http.port
        self._http.start()

    def _state(self) -> dict[str, Any]:
        assert self._controller is not None, "it was opened before"
        return self.broker.state() | self._controller.state()

    async def stop(self) -> None:
        """Takes in what was sent, commits it, leaves the clean-stop mark."""
        log.info("stopping")
        self._stopping = True
        assert self._door is not None, "it was started"
        if not self.broker.failed.done():
            await self._door.set_serving(False)
            if self._recorder is not None:
                await self._recorder.drain()
            assert self._controller is not None, "it was started"
            self.broker.readiness.end("stopping")
            assert self._handing_over is not None, "it was started"
            await self._handing_over.everything()
            await self._controller.step_aside()
            await self._handing_over.stop()
        await self.broker.stop()
        if self._peers is not None:
            await self._peers.stop()
        if self._connection is not None:
            await self._flush_answers(self._connection)
            await self._connection.close()
        # Calls that are in the socket already are told why they fail, instead of being cut off.
        await asyncio.sleep(LINGER_SECONDS)
        await self._door.stop(GRACE_SECONDS)
        if self._http is not None:
            self._http.stop()
        await self._leave_marker()
        if self._controller is not None:
            await self._controller.close()
        self._close_directory()
        self._metadata_thread.shutdown()
        self._end_watch()
        log.info("stopped")

    def mark_failed(self) -> None:
        """Leaves the mark that keeps a broker from starting on what a failed flush left."""
        self._directory.mark_failed(str(self.broker.failed.result()))

    @staticmethod
    async def _flush_answers(connection: Connection) -> None:
        try:
            await connection.flush(GRACE_SECONDS)
        except Exception as error:
            log.warning("the last answers to NATS publishers may be lost", error=str(error))


async def serve(settings: Settings) -> int:
    """Runs a broker until SIGTERM or SIGINT; the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return await run_until(Service(settings), stop, on_failed=_end_in_time)


async def run_until(
    service: Service, stop: asyncio.Event, *, on_failed: Callable[[], None] = lambda: None
) -> int:
    """Runs a broker until `stop` is set or its storage fails; 0, or 1 after a failure.

    `on_failed` is called at once when it fails: what follows may hang on the broken disk.
    """
    starting, stopped = asyncio.create_task(service.start()), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not starting.done():
        # It waits for its cluster, and somebody has had enough of that.
        starting.cancel()
        await asyncio.wait([starting])
        if starting.cancelled():
            return 0
    starting.result()
    failed = service.broker.failed
    failed.add_done_callback(lambda done: stop.set())
    await stop.wait()
    marked = failed.done()
    if marked:
        on_failed()
        service.mark_failed()
    await service.stop()
    if failed.done() and not marked:
        service.mark_failed()
    return 1 if failed.done() else 0


def _end_in_time() -> None:
    """The process of a failed broker ends, whatever its disk does."""
    timer = threading.Timer(FAILED_SECONDS_MAX, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _bind(door: GrpcDoor, spec: str, broker_id: int) -> Listener:
    try:
        name, host, port, shown_host, shown_port = parse_listen(spec, broker_id)
    except ValueError as error:
        # What is right for broker 0 may not be for this one.
        raise BrokerError(str(error)) from None
    bound = door.listen(host, port)
    return Listener(name, shown_host, shown_port or bound)


def _seeds(settings: Settings) -> tuple[tuple[str, int], ...]:
    return tuple(parse_address(seed.strip()) for seed in settings.seeds.split(",") if seed.strip())


def _limits(settings: Settings) -> BrokerLimits:
    return BrokerLimits(
        produce_timeout=settings.produce_timeout_ms / 1000,
        checkpoint_interval=settings.checkpoint_interval_ms / 1000,
        page_cache_flush_interval=settings.page_cache_flush_interval_ms / 1000,
        page_cache_dirty_bytes_max=settings.page_cache_dirty_bytes_max,
        syncfs_dirty_bytes_max=settings.syncfs_dirty_bytes_max,
        sweep_interval=settings.sweep_interval_ms / 1000,
        deleted_delay=settings.deleted_delay_ms / 1000,
        flush_threads=settings.flush_threads,
        catch_up_threads=settings.catch_up_threads,
        decode_threads=settings.decode_threads,
        fetch_decoded_bytes_max=settings.fetch_decoded_bytes_max,
        validation_threads=settings.validation_threads,
        catch_up_bytes_per_second=settings.catch_up_bytes_per_second,
        scrub_bytes_per_second=settings.scrub_bytes_per_second,
        scrub_interval=settings.scrub_interval_ms / 1000,
    )
