"""Builds one broker from the bottom up; processes, tests and the simulator run the same assembly.

`open_assembly` opens the data directory and makes the parts; `start` makes the broker take part in its
cluster, and `stop` makes it leave. The doors stand in front of it and serve its `services`. The parts get
the outside world as a `Platform`; everything else comes from the running event loop.

Neighbour: `service` is the process around this, with its sockets and signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog
from google.protobuf.descriptor import ServiceDescriptor

from tidelog.model import Listener
from tidelog_broker.api.access_service import AccessService
from tidelog_broker.api.admin_service import AdminService
from tidelog_broker.api.log_service import LogService
from tidelog_broker.api.metadata_service import MetadataService
from tidelog_broker.config.settings import Settings
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.controller.handovers import Led
from tidelog_broker.core.metadata.controller.registration import Registration, put_back
from tidelog_broker.encryption import Encryption, encryption_of
from tidelog_broker.errors import BrokerError, DirectoryDamaged, StorageFailure
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.hosting.broker_limits import BrokerLimits
from tidelog_broker.hosting.handover import HandingOver
from tidelog_broker.hosting.quorum_peers import QuorumPeers
from tidelog_broker.listener_addresses import parse_listen
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.formation import until_formatted
from tidelog_broker.nats.broker_recording import BrokerRecording
from tidelog_broker.nats.settings import NatsSettings
from tidelog_broker.opening import open_data_directory, seeds_of
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.platform import Platform
from tidelog_broker.quorum.opening import open_quorum_controller
from tidelog_broker.quorum.options import QuorumOptions
from tidelog_broker.quorum.transport import PEER_LISTENER
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.protocol import Volume
from tidelog_broker.tls.credentials import Credentials
from tidelog_broker.trust import access_control_of, check_exposure
from tidelog_broker.upkeep.maintenance import MaintenanceLimits
from tidelog_proto import access_pb2, admin_pb2, log_pb2, metadata_pb2

log = structlog.get_logger(__name__)

IDENTITY_THREADS: Final = 2
"""Questions about credentials to other programs at a time."""


async def open_assembly(settings: Settings, platform: Platform) -> Assembly:
    """Opens the data directory of a broker, an empty one as `opening` says, and builds the broker on it.

    Waits for a seed if it has to. Raises `BrokerError` or OSError.
    """
    check_exposure(settings)
    encryption = encryption_of(settings)
    metadata_thread = platform.threads(1, "tidelog-metadata")
    directory = await open_data_directory(settings, platform, metadata_thread, encryption.peers)
    try:
        _check_name(encryption.peers, directory.broker_id)
        with _marking(directory):
            return Assembly(settings, platform, directory, metadata_thread, encryption)
    except BaseException:
        directory.close()
        raise


@contextmanager
def _marking(directory: DataDirectory) -> Iterator[None]:
    """Marks the directory FAILED if the start cannot flush what it finds: no start uses it again (4.3)."""
    try:
        yield
    except StorageFailure as error:
        directory.mark_failed(str(error))
        raise


class Assembly:
    """A list of parts, started in order and stopped in reverse (DESIGN section 7). The `QuorumHost`."""

    def __init__(
        self,
        settings: Settings,
        platform: Platform,
        directory: DataDirectory,
        metadata_thread: Executor,
        encryption: Encryption,
    ) -> None:
        """Only opens the metadata log; nothing else happens yet."""
        self._settings = settings
        self.encryption = encryption
        self.directory = directory
        self._metadata_thread = metadata_thread
        self._formation: asyncio.Task[None] | None = None
        """The task that waits until the marker says that the cluster was formed."""
        self._recording: BrokerRecording | None = None
        """None: no NATS server is configured, or the start has not come that far."""
        self._rng = platform.rng
        self.over: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        """Done when this run must not go on, although its disk works."""
        self._clock = ClusterClock(
            platform.clock, platform.elapsed, skew_us_max=settings.clock_skew_max_ms * 1000
        )
        # Before anything is written: an earlier write error would be reported to no process (DESIGN 4.3).
        self._volume = _open_volume(settings, platform, directory)
        self.controller = controller = open_quorum_controller(
            directory,
            metadata_thread,
            self,
            options=QuorumOptions(
                voters_wanted=settings.voters,
                seeds=seeds_of(settings),
                formed=not settings.formation,
                tls=encryption.peers,
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
            tls_files=encryption.files,
        )
        self._identity_threads = platform.threads(IDENTITY_THREADS, "tidelog-identity")
        self.access_control = access_control_of(
            settings,
            encryption.clients.get("mutual"),
            lambda: controller.image,
            platform.clock,
            platform.elapsed,
            self._identity_threads,
            data_directory=Path(directory.path),
            broker_id=directory.broker_id,
        )
        controller.watch(self.access_control.authorization.image_changed)
        broker.metrics.add(self.access_control.authorization.usages.samples)
        self._admin = AdminService(broker, controller, platform.new_id)
        self._log = LogService(broker, controller)
        self._access = AccessService(broker, controller, self.access_control)
        self.handing_over = HandingOver(broker.partitions, controller.session.report_settled)
        self.services: Sequence[tuple[ServiceDescriptor, object]] = (
            (metadata_pb2.DESCRIPTOR.services_by_name["Metadata"], MetadataService(controller)),
            (log_pb2.DESCRIPTOR.services_by_name["Log"], self._log),
            (admin_pb2.DESCRIPTOR.services_by_name["Admin"], self._admin),
            (access_pb2.DESCRIPTOR.services_by_name["Access"], self._access),
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
        # Last, because clients that name no listener use the first.
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
        """Allows further voters once the marker says that the cluster was formed (M1)."""
        await until_formatted(marker, self.directory.cluster_id, self._metadata_thread)
        self.controller.leadership.formed = True

    async def _listen_for_peers(self) -> list[Listener]:
        if self.broker.links is None:
            return []
        _, host, port, shown_host, shown_port, _ = parse_listen(self._settings.peer_listener)
        accept = self.broker.links.accept
        address = await self.controller.listen(
            host,
            port,
            {ConnectionKind.REPLICA: accept, ConnectionKind.CATCH_UP: accept},
            (shown_host, shown_port),
        )
        return [Listener(PEER_LISTENER, *address)]

    async def _register(self, listeners: Sequence[Listener]) -> None:
        """Registers this run in the metadata log: it leads in new epochs from here on (R10).

        Raises `DirectoryDamaged` for a directory that was restored from a copy, before it counts this
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
        nats = NatsSettings(servers=urls, name=self._settings.nats_name)
        self._recording = BrokerRecording(self.broker, nats, self._rng)
        self.session_changed(self.controller.session.session_good())
        self._recording.start()

    # --- of `quorum.host.QuorumHost`

    def fail(self, error: BaseException) -> None:
        """The files can no longer be trusted: nothing is acknowledged from here on (DESIGN 4.3)."""
        self.broker.fail(error)

    def end_run(self, error: BrokerError) -> None:
        if not self.over.done():
            self.over.set_result(error)

    def session_changed(self, good: bool) -> None:
        """A broker without peers ignores it: no other broker can lead what it leads (N5)."""
        if self._peers is None:
            return
        # The recorder first, so that it is silent about what the broker gives up.
        if self._recording is not None:
            self._recording.session_changed(good)
        self.broker.session(good)

    def damaged_replicas(self) -> tuple[ReplicaName, ...]:
        return self.broker.damaged_replicas()

    def handovers_requested(self, leaderships: tuple[Led, ...]) -> None:
        self.handing_over.wished(leaderships)

    def peer_refused(self, broker: int) -> None:
        if self.broker.links is not None:
            self.broker.links.refused(broker)

    async def serve_call(self, rpc: str, request: bytes) -> bytes:
        for forwarding in (self._log.forwarding, self._access.forwarding):
            if rpc in forwarding:
                return await forwarding.serve_call(rpc, request)
        return await self._admin.serve_call(rpc, request)

    # --- what it shows

    def state(self) -> dict[str, Any]:
        """The state of the broker, for /debug/state."""
        return self.broker.state() | self.controller.state()

    # --- the end

    def mark_failed(self) -> None:
        """Writes the mark that keeps a broker from starting after a failed flush."""
        self.directory.mark_failed(str(self.broker.failed.result()))

    async def stop(self) -> None:
        """Commits what was sent, hands over, and writes the clean-stop mark. Calls are still
        answered, and refused. `close` comes next."""
        if not self.broker.failed.done():
            if self._recording is not None:
                await self._recording.drain()
            self.broker.readiness.end("stopping")
            await self.handing_over.everything()
            await self.controller.step_aside()
            await self.handing_over.stop()
        await self.broker.stop()
        if self._recording is not None:
            await self._recording.close()
        if self._peers is not None:
            await self._peers.stop()

    async def close(self) -> None:
        """Leaves the quorum and releases the data directory; also after a start that failed."""
        if self._formation is not None:
            self._formation.cancel()
            await asyncio.gather(self._formation, return_exceptions=True)
        await self.controller.close()
        if self._volume is not None:
            self._volume.close()
        self.directory.close()
        self._metadata_thread.shutdown()
        # A question that another program has not answered yet is left alone.
        self._identity_threads.shutdown(wait=False, cancel_futures=True)


def _check_name(tls: Credentials | None, broker_id: int) -> None:
    if tls is not None and tls.name.broker_id != broker_id:
        raise BrokerError(
            f"the certificate of this broker names {tls.name}, but the data directory belongs to broker "
            f"{broker_id}; give the certificate of broker {broker_id}"
        )


def _open_volume(settings: Settings, platform: Platform, directory: DataDirectory) -> Volume | None:
    """The volume of the data directory, if one flush of it may stand for the flushes of many files."""
    judgement = platform.judge_volume(settings.syncfs, directory.path)
    say = log.warning if settings.syncfs == "on" and not judgement.safe else log.info
    way = "by one syncfs" if judgement.safe else "one by one"
    say("many files are flushed at once", way=way, reason=judgement.reason)
    return platform.files.open_volume(directory.path) if judgement.safe else None


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
        projection_threads=settings.projection_threads,
        fetch_decoded_bytes_max=settings.fetch_decoded_bytes_max,
        fetch_answer_bytes_max=settings.fetch_answer_bytes_max,
        message_bytes_max=settings.message_bytes_max,
        validation_threads=settings.validation_threads,
        catch_up_bytes_per_second=settings.catch_up_bytes_per_second,
        scrub_bytes_per_second=settings.scrub_bytes_per_second,
        scrub_interval=settings.scrub_interval_ms / 1000,
    )
