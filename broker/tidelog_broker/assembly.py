"""One broker, built from the bottom up: what a process, a test and the simulator run.

`open_assembly` opens the data directory and makes the parts; `start` has the broker take part in its
cluster, and `stop` has it leave. The doors stand in front of it: `services` is what they serve. What the
parts are given of the world is a `Platform`; whatever is not in there comes from the running event loop.

Neighbour: `service` is the process around this, with its sockets and signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from google.protobuf.descriptor import ServiceDescriptor

from tidelog.model import Listener, id_text
from tidelog_broker.api.admin_service import AdminService
from tidelog_broker.api.log_service import LogService
from tidelog_broker.api.metadata_service import MetadataService
from tidelog_broker.config import Settings, parse_address, parse_listen
from tidelog_broker.core.metadata.registration import Registration, put_back
from tidelog_broker.errors import BrokerError, DirectoryDamaged, StorageFailure
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.hosting.broker_limits import BrokerLimits
from tidelog_broker.hosting.handover import HandingOver
from tidelog_broker.hosting.quorum_peers import QuorumPeers
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.formation import beginning, until_formatted
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.recorder import Recorder
from tidelog_broker.nats.settings import NatsSettings
from tidelog_broker.offline.formatting import format_joiner, format_solo, make_empty_log
from tidelog_broker.platform import Platform
from tidelog_broker.quorum.opening import open_quorum_controller
from tidelog_broker.quorum.quorum_controller import QuorumOptions
from tidelog_broker.quorum.transport import PEER_LISTENER
from tidelog_broker.storage.directory import superseding
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.protocol import Volume
from tidelog_broker.upkeep.maintenance import MaintenanceLimits
from tidelog_proto import admin_pb2, log_pb2, metadata_pb2

log = structlog.get_logger(__name__)

SEED_PAUSE_SECONDS = 0.5
"""Between two rounds of asking seeds for the id of their cluster."""

GRACE_SECONDS = 0.5
"""How long the last answers to NATS publishers may take."""


async def open_assembly(settings: Settings, platform: Platform) -> Assembly:
    """Opens the data directory of a broker; one that is empty becomes that of a cluster's broker (M1).

    Waits for a seed if it has to. Raises `BrokerError` or OSError with a sentence.
    """
    metadata_thread = platform.threads(1, "tidelog-metadata")
    await _join(settings, platform)
    directory = await asyncio.get_running_loop().run_in_executor(
        metadata_thread,
        lambda: DataDirectory.open(
            platform.files, data_path(settings), broker_id=settings.broker_id,
            reserve_bytes=settings.disk_reserve_bytes,
            read_boot_id=platform.boot_id, lock=platform.lock,
        ),
    )  # fmt: skip
    try:
        await asyncio.get_running_loop().run_in_executor(metadata_thread, _start_over, platform, directory)
        with _marking(directory):
            return Assembly(settings, platform, directory, metadata_thread)
    except BaseException:
        directory.close()
        raise


@contextmanager
def _marking(directory: DataDirectory) -> Iterator[None]:
    """A start that could not flush what it found is the last one on this directory (DESIGN 4.3)."""
    try:
        yield
    except StorageFailure as error:
        directory.mark_failed(str(error))
        raise


async def _join(settings: Settings, platform: Platform) -> None:
    """An empty folder becomes the data directory of a broker of the seeds' cluster, or its first (M1)."""
    path = data_path(settings)
    if settings.seeds and not settings.peer_listener:
        raise BrokerError("seeds are of no use without a peer listener; give --peer-listener")
    if not settings.seeds and not settings.formation:
        return
    if DataDirectory.is_formatted(platform.files, path):
        return
    if settings.broker_id is None:
        raise BrokerError(f"{path} is empty, and a broker that joins a cluster needs an id; give --broker-id")
    marker = Path(settings.formation) if settings.formation else None
    cluster_id, forms = await beginning(seeds_of(settings), settings.broker_id, SEED_PAUSE_SECONDS, marker)
    make = format_solo if forms else format_joiner
    make(
        platform.files, path,
        cluster_id=cluster_id, broker_id=settings.broker_id, directory_id=platform.new_id(),
    )  # fmt: skip
    what = "forming a cluster" if forms else "joining a cluster"
    log.info(what, cluster=id_text(cluster_id), broker=settings.broker_id)


def _start_over(platform: Platform, directory: DataDirectory) -> None:
    """Sets aside a metadata log whose history was given up by a forced recovery (M2). Blocking."""
    if superseding.is_marked(platform.files, directory.path):
        make = partial(make_empty_log, platform.files)
        aside = superseding.set_aside(platform.files, directory.path, make)
        log.warning("the metadata log was set aside; it is learnt from the other brokers", kept=aside)


class Assembly:
    """See the module. A list of parts, started in order and stopped in reverse (DESIGN section 7)."""

    def __init__(
        self, settings: Settings, platform: Platform, directory: DataDirectory, metadata_thread: Executor
    ) -> None:
        """Nothing happens yet, but for the metadata log, which is opened."""
        self._settings = settings
        self.directory = directory
        self._metadata_thread = metadata_thread
        self._formation: asyncio.Task[None] | None = None
        """Waits until the marker says that the cluster was formed."""
        self._connection: NatsConnection | None = None
        self._recorder: Recorder | None = None
        self._stopping = False
        self._rng = platform.rng
        self.over: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        """Done when this run must not go on, although its disk works."""
        self._clock = ClusterClock(
            platform.clock, platform.elapsed, skew_us_max=settings.clock_skew_max_ms * 1000
        )
        # Before anything is written: what fails earlier would be told to nobody (DESIGN 4.3).
        self._volume = _open_volume(settings, platform, directory)
        self.controller = controller = open_quorum_controller(
            directory,
            metadata_thread,
            fail=self.fail,
            ended=self._end,
            options=QuorumOptions(
                voters_wanted=settings.voters, seeds=seeds_of(settings), formed=not settings.formation
            ),
            incarnation=platform.new_id(),
            rng=platform.rng,
            clock=self._clock,
        )
        store = LogStore(
            platform.files,
            directory.path,
            open_files_max=settings.open_files_max,
            tail_cache_bytes_max=settings.tail_cache_bytes_max,
            volume=self._volume,
        )
        self._peers = QuorumPeers(controller) if settings.peer_listener else None
        self.broker = broker = Broker(
            directory.broker_id,
            store,
            controller,
            self._clock,
            _limits(settings),
            platform.rng,
            reserve=directory.reserve,
            incarnation=controller.incarnation,
            peers=self._peers,
            make_threads=platform.threads,
        )
        if self._peers is not None and broker.links is not None:
            self._peers.connect(broker.links)
        admin = AdminService(broker, controller, platform.new_id)
        controller.serve_calls(admin.serve_call)
        membership = controller.membership
        membership.on_session = self._session
        membership.damaged = broker.damaged_replicas
        self.handing_over = HandingOver(broker.partitions, membership.settled)
        membership.on_wishes = self.handing_over.wished
        self.services: Sequence[tuple[ServiceDescriptor, object]] = (
            (metadata_pb2.DESCRIPTOR.services_by_name["Metadata"], MetadataService(controller)),
            (log_pb2.DESCRIPTOR.services_by_name["Log"], LogService(broker)),
            (admin_pb2.DESCRIPTOR.services_by_name["Admin"], admin),
        )

    def __repr__(self) -> str:
        return f"<Assembly {self.directory!r} {self.controller!r}>"

    # --- starting

    async def start(self, listeners: Sequence[Listener]) -> list[Listener]:
        """Returns when this run is a member of its cluster and serves what the image says.

        `listeners`: where clients reach it. Returns these and the one for other brokers.
        """
        settings, directory, controller, broker = self._settings, self.directory, self.controller, self.broker
        if settings.formation:
            self._formation = asyncio.create_task(self._until_formed(Path(settings.formation)))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._metadata_thread, directory.reserve.restore)
        # Last: clients without another wish take the first.
        all_listeners = [*listeners, *await self._listen_for_peers()]
        await controller.start()
        with _marking(directory):
            await broker.open_logs(same_boot=directory.same_boot)
        await self._register(all_listeners)
        broker.start()
        await broker.applied(controller.image.version)
        self._start_nats()
        return all_listeners

    async def _until_formed(self, marker: Path) -> None:
        """Has the only voter get company once the marker says that the cluster was formed (M1)."""
        await until_formatted(marker, self.directory.cluster_id, self._metadata_thread)
        self.controller.formed = True

    async def _listen_for_peers(self) -> list[Listener]:
        if not self._settings.peer_listener:
            return []
        _, host, port, shown_host, shown_port = parse_listen(self._settings.peer_listener)
        bound = await self.controller.listen(host, port)
        address = self.controller.transport.address = (shown_host, shown_port or bound)
        return [Listener(PEER_LISTENER, *address)]

    async def _register(self, listeners: Sequence[Listener]) -> None:
        """Tells the metadata log of this run: it leads in new epochs from here on (R10).

        Raises `DirectoryDamaged` for a directory that was put back from a copy, before it counts this
        start: repeated starts must not bring its count up to what is known (R19).
        """
        directory = self.directory
        loop = asyncio.get_running_loop()
        known = self.controller.image.brokers.get(directory.broker_id)
        if known is not None:
            reason = put_back(known, directory.directory_id, directory.meta.start_count + 1)
            if reason:
                raise DirectoryDamaged(reason)
        starts = await loop.run_in_executor(self._metadata_thread, directory.record_start)
        await self.controller.register(
            Registration(
                cluster_id=directory.cluster_id,
                broker_id=directory.broker_id,
                incarnation=self.controller.incarnation,
                directory_id=directory.directory_id,
                listeners=tuple(listeners),
                rack=self._settings.rack,
                starts=starts,
                suspects=self.broker.suspects(),
                lost=self.broker.lost_replicas(),
            )
        )

    def _start_nats(self) -> None:
        urls = tuple(url.strip() for url in self._settings.nats.split(",") if url.strip())
        if not urls:
            return
        self._connection = NatsConnection(
            NatsSettings(servers=urls, name=self._settings.nats_name),
            self._rng,
            on_connected=lambda server: log.info("connected to NATS", server=server),
            on_disconnected=self._nats_lost,
        )
        self._recorder = Recorder(self.broker, self._connection)
        self._session(self.controller.session_good())
        self.broker.listen(self._recorder)
        self._connection.start()

    def _session(self, good: bool) -> None:
        """A broker without peers goes on: nobody else can lead what it leads (N5)."""
        if self._peers is None:
            return
        # First, so that it is silent about what the broker gives up.
        if self._recorder is not None:
            self._recorder.session(good)
        self.broker.session(good)

    def _nats_lost(self, reason: str) -> None:
        say = log.info if self._stopping else log.warning
        say("disconnected from NATS", reason=reason)

    # --- what it shows

    def state(self) -> dict[str, Any]:
        """What the broker believes, for /debug/state."""
        return self.broker.state() | self.controller.state()

    # --- the end

    def fail(self, error: BaseException) -> None:
        """Its files cannot be trusted any more: nothing is acknowledged from here on (DESIGN 4.3)."""
        self.broker.fail(error)

    def _end(self, error: BrokerError) -> None:
        if not self.over.done():
            self.over.set_result(error)

    def mark_failed(self) -> None:
        """Leaves the mark that keeps a broker from starting on what a failed flush left."""
        self.directory.mark_failed(str(self.broker.failed.result()))

    async def stop(self) -> None:
        """Takes in what was sent, commits it, hands over, and leaves the clean-stop mark; calls are still
        answered, and refused. `close` comes next."""
        self._stopping = True
        if not self.broker.failed.done():
            if self._recorder is not None:
                await self._recorder.drain()
            self.broker.readiness.end("stopping")
            await self.handing_over.everything()
            await self.controller.step_aside()
            await self.handing_over.stop()
        await self.broker.stop()
        if self._recorder is not None:
            await self._recorder.refused()
        if self._peers is not None:
            await self._peers.stop()
        if self._connection is not None:
            await _flush_answers(self._connection)
            await self._connection.close()

    async def close(self) -> None:
        """Leaves the quorum and lets the data directory go; also after a start that failed."""
        if self._formation is not None:
            self._formation.cancel()
            await asyncio.gather(self._formation, return_exceptions=True)
        await self.controller.close()
        if self._volume is not None:
            self._volume.close()
        self.directory.close()
        self._metadata_thread.shutdown()


def data_path(settings: Settings) -> str:
    """Absolute."""
    return str(settings.data_dir.resolve())


def seeds_of(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Peer listeners of other brokers, to begin with."""
    return tuple(parse_address(seed.strip()) for seed in settings.seeds.split(",") if seed.strip())


def _open_volume(settings: Settings, platform: Platform, directory: DataDirectory) -> Volume | None:
    """Of the data directory, if one flush of it may stand for those of many files."""
    judgement = platform.judge_volume(settings.syncfs, directory.path)
    say = log.warning if settings.syncfs == "on" and not judgement.safe else log.info
    way = "by one syncfs" if judgement.safe else "one by one"
    say("how many files at once are flushed", way=way, reason=judgement.reason)
    return platform.files.open_volume(directory.path) if judgement.safe else None


async def _flush_answers(connection: NatsConnection) -> None:
    try:
        await connection.flush(GRACE_SECONDS)
    except Exception as error:
        log.warning("the last answers to NATS publishers may be lost", error=str(error))


def _limits(settings: Settings) -> BrokerLimits:
    return BrokerLimits(
        produce_timeout=settings.produce_timeout_ms / 1000,
        maintenance=MaintenanceLimits(
            checkpoint_interval=settings.checkpoint_interval_ms / 1000,
            page_cache_flush_interval=settings.page_cache_flush_interval_ms / 1000,
            page_cache_dirty_bytes_max=settings.page_cache_dirty_bytes_max,
            sweep_interval=settings.sweep_interval_ms / 1000,
            deleted_delay=settings.deleted_delay_ms / 1000,
        ),
        syncfs_dirty_bytes_max=settings.syncfs_dirty_bytes_max,
        flush_threads=settings.flush_threads,
        catch_up_threads=settings.catch_up_threads,
        decode_threads=settings.decode_threads,
        fetch_decoded_bytes_max=settings.fetch_decoded_bytes_max,
        fetch_answer_bytes_max=settings.fetch_answer_bytes_max,
        message_bytes_max=settings.message_bytes_max,
        validation_threads=settings.validation_threads,
        catch_up_bytes_per_second=settings.catch_up_bytes_per_second,
        scrub_bytes_per_second=settings.scrub_bytes_per_second,
        scrub_interval=settings.scrub_interval_ms / 1000,
    )
