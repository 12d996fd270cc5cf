"""One broker: the parts that serve its partitions, put together.

The broker is a list of parts, started in order and stopped in reverse (DESIGN section 7). Doors reach the
parts through the broker.

`hosted_partitions` has the partitions, and `image_follower` keeps them as the image says.
`writing.write_rounds` and `writing.flush_rounds` write and flush them, `upkeep.tasks` maintains their logs,
`threads` has the threads, and `samples` has the gauges. `assembly` builds a broker and its doors.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from tidelog.errors import Stopping, StorageFailed, TidelogError, TimedOut
from tidelog_broker.core.metadata.commands import ReplicaName, Suspect
from tidelog_broker.errors import StorageFailure
from tidelog_broker.hosting.broker_limits import BrokerLimits
from tidelog_broker.hosting.hosted_partitions import HostedPartitions, PartitionListener
from tidelog_broker.hosting.image_follower import ImageFollower
from tidelog_broker.hosting.parts import (
    make_flush_rounds,
    make_healer,
    make_links,
    make_scrubber,
    make_write_rounds,
)
from tidelog_broker.hosting.producer_ids import ProducerIds
from tidelog_broker.hosting.readiness import Readiness
from tidelog_broker.hosting.record_deletion import RecordDeletion
from tidelog_broker.hosting.replica_host import BrokerPartitionHost
from tidelog_broker.hosting.samples import (
    broker_samples,
    broker_state,
    clock_samples,
    load_samples,
    tls_samples,
)
from tidelog_broker.hosting.sink_runs import SinkRuns
from tidelog_broker.hosting.threads import MakeThreads, Threads
from tidelog_broker.limits.answer_room import AnswerRoom
from tidelog_broker.limits.checks import Checks
from tidelog_broker.limits.decoding import Decoding
from tidelog_broker.limits.projections import Projections
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.metrics import Metrics, Sample
from tidelog_broker.quorum.controller import Controller
from tidelog_broker.replication.links import ReplicaLinks
from tidelog_broker.replication.peers import Peers
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.tls.following import FollowedFiles
from tidelog_broker.upkeep.maintenance import Maintenance
from tidelog_broker.upkeep.tasks import UpkeepTasks
from tidelog_broker.writing.append_requests import Append
from tidelog_broker.writing.partition import Partition

log = structlog.get_logger(__name__)

STOP_COMMIT_SECONDS_MAX = 10.0
"""How long a stop waits for appends without an answer."""

STOP_LOOK_SECONDS = 0.01

DAMAGED_TOLD_MAX = 256
"""Maximum number of damaged replicas in one heartbeat; the others follow once these are healed."""

T = TypeVar("T")


class Broker:
    """The parts of one broker, and the methods that doors call. Runs on one event loop."""

    def __init__(
        self,
        broker_id: int,
        store: LogStore,
        controller: Controller,
        clock: ClusterClock,
        limits: BrokerLimits,
        rng: random.Random,
        *,
        reserve: Reserve | None = None,
        incarnation: bytes | None = None,
        peers: Peers | None = None,
        make_threads: MakeThreads = ThreadPoolExecutor,
        tls_files: Sequence[FollowedFiles] = (),
    ) -> None:
        """`reserve`: reserved disk space with which checkpoints work on a full disk; None: there is none.

        `incarnation`: identifies this run, which leads once the image shows it (R10). None: the image
        shows no other run, as on a broker without peers. `peers`: the other brokers; None: there are none.
        `tls_files`: those that this broker uses, for the metrics.
        """
        self._tls_files = tls_files
        self._loop = asyncio.get_running_loop()
        self.broker_id = broker_id
        self.controller = controller
        self.producer_ids = ProducerIds(controller)
        self.sink_runs = SinkRuns(controller, self._in_housekeeping)
        self.clock = clock
        self.limits = limits
        self.metrics = Metrics(self._samples)
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        """Completes when storage can no longer be trusted: the process must then end."""
        self._hosted = HostedPartitions(broker_id)
        self.readiness = Readiness(broker_id, self._hosted, lambda: controller.image)
        self.partitions = self._hosted.served
        """Partitions that are served here, by (stream id, partition)."""
        self.lost = self._hosted.lost
        """Partitions without a usable log, and the reasons."""
        self.uncreated = self._hosted.uncreated
        """Lost partitions for which no folder could be created yet."""
        self.halted = self._hosted.halted
        """Lost partitions that failed unexpectedly in this run."""
        self._store = store
        self._reserve = reserve
        self._peers = peers
        self._threads = threads = Threads(
            flush_threads=limits.flush_threads,
            catch_up_threads=limits.catch_up_threads,
            decode_threads=limits.decode_threads,
            projection_threads=limits.projection_threads,
            validation_threads=limits.validation_threads,
            make=make_threads,
        )
        self.decoding = Decoding(
            threads.decode, limits.fetch_decoded_bytes_max, record_bytes_max=limits.message_bytes_max
        )
        """Decodes batches for readers that want plain records."""
        self.projections = Projections(threads.project, limits.fetch_decoded_bytes_max)
        """Filters batches for readers that want some columns or records."""
        self.answers = AnswerRoom(limits.fetch_answer_bytes_max)
        """Limits the bytes in answers to readers that want batches as stored in the log."""
        self.checks = Checks(threads.validation, limits.validation_threads)
        """Checks data that clients send."""
        self._flushes = make_flush_rounds(store, threads, limits, self.metrics, self.fail, self.isolate)
        self._rounds = make_write_rounds(threads, self._flushes, clock, self.metrics, self.fail, self.isolate)
        self._maintenance = Maintenance(
            store, self.partitions, self._rounds, self._flushes, threads.housekeeping, clock, self.fail,
            limits.maintenance, image=lambda: controller.image, newest=controller.newest, reserve=reserve,
            retry=self._retry_uncreated,
        )  # fmt: skip
        self.links: ReplicaLinks | None = None
        """Connections to the other brokers' replicas; None: there are no other brokers."""
        healer = None
        if peers is not None:
            healer = make_healer(
                self.partitions, store, self._rounds, self._flushes, threads, self.metrics, self.fail
            )
            self.links = make_links(
                peers, self._hosted.replicas, controller, threads, limits, rng, healer.received
            )
        scrubber = make_scrubber(self.partitions, threads, limits, self.metrics)
        self._upkeep = UpkeepTasks(self._maintenance, scrubber, healer, self.links)
        self._host = BrokerPartitionHost(
            broker_id, incarnation, store, self._rounds, self._flushes, self._maintenance, clock,
            self._set_aside, reserve=reserve, peers=peers, links=self.links,
        )  # fmt: skip
        self._follower = ImageFollower(
            broker_id, controller, self._hosted, self._host, store, self._rounds, self._flushes, threads,
            self.fail, self._maintenance.deleted, self._replica_lost,
        )  # fmt: skip
        self._deletion = RecordDeletion(self._maintenance)
        self._stopping = False

    # --- called by the parts

    def _in_housekeeping(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._threads.housekeeping, work)

    def _set_aside(self, partition: Partition, reason: str) -> None:
        self._follower.set_aside(partition, reason)

    def _retry_uncreated(self) -> None:
        self._follower.retry_uncreated()

    def _replica_lost(self, partition: Partition, reason: str) -> None:
        if self.links is not None:
            self.links.forget(partition.replica)
        if self._peers is not None:
            self._peers.replica_lost(*partition.key, partition.log.assignment, reason)

    # --- starting and stopping

    async def open_logs(self, *, same_boot: bool) -> None:
        """Opens the log of every partition that the image places here; all records are then on disk."""
        await self._follower.open_logs(same_boot=same_boot)

    def suspects(self) -> tuple[Suspect, ...]:
        """For the registration: replicas that may lack acknowledged records.

        Called between `open_logs` and `start`.
        """
        return self._follower.suspects()

    def lost_replicas(self) -> tuple[ReplicaName, ...]:
        """For the registration, after `open_logs`: replicas without a usable log."""
        return self._follower.lost_replicas()

    def damaged_replicas(self) -> tuple[ReplicaName, ...]:
        """Replicas with a range that cannot be read (2c); at most `DAMAGED_TOLD_MAX` of them."""
        if not self._store.files.damaged_folders:
            return ()
        return self._hosted.damaged(DAMAGED_TOLD_MAX)

    def start(self) -> None:
        """Begins to serve the partitions, with the leaders and epochs in the image (R10)."""
        self._follower.start()
        self._upkeep.start()
        self.readiness.begin()

    def session(self, good: bool) -> None:
        """Sets whether this broker has a session with the controller (`good`), by this broker's clock."""
        self._host.unsure = not good
        for partition in list(self.partitions.values()):
            partition.doubt_may_have_changed()

    async def stop(self) -> None:
        """Commits appends without an answer, flushes, and writes the mark of a clean stop."""
        self._stopping = True
        self.readiness.end("stopping")
        for partition in self.partitions.values():
            partition.stopped = True
        with contextlib.suppress(TimeoutError, StorageFailure):
            async with asyncio.timeout(STOP_COMMIT_SECONDS_MAX):
                if not self.failed.done():
                    await self._rounds.drained()
                    await self._flushes.flush(p for p in self.partitions.values() if p.replica.fsync)
                    await self._others_committed()
        for partition in self.partitions.values():
            partition.give_up(
                Stopping("the broker is stopping", retry_after_ms=500),
                TimedOut("the broker stopped before it knew of the commit; the records may be in the log"),
            )
            partition.replica.end_role()
        self._host.stop()
        await self._upkeep.stop_repairs()
        if self.links is not None:
            await self.links.stop("the broker stops")
        await self._follower.stop()
        await self._upkeep.stop_maintenance()
        self._follower.give_up(Stopping("the broker is stopping", retry_after_ms=500))
        if not self.failed.done():
            await self._close_clean()
        # Not on the event loop: a slow read must not delay the answers to other requests.
        await asyncio.to_thread(self._threads.shutdown, wait=not self.failed.done())

    async def _others_committed(self) -> None:
        """Waits until followers have all appends without an answer; the caller sets a time limit."""
        while any(partition.waiting for partition in self.partitions.values()):  # noqa: ASYNC110  once, at a stop
            await asyncio.sleep(STOP_LOOK_SECONDS)

    async def _close_clean(self) -> None:
        entries = [(partition.log, partition.high_watermark) for partition in self.partitions.values()]
        try:
            await self._rounds.drained()
            await self._loop.run_in_executor(self._threads.flush_lead, self._store.close_clean, entries)
        except StorageFailure as error:
            self.fail(error)
        except OSError as error:
            log.warning("the clean stop could not be marked; the next start recovers", error=str(error))

    def fail(self, error: BaseException) -> None:
        """Storage can no longer be trusted: from here on no append is acknowledged (DESIGN 4.3)."""
        if self.failed.done():
            return
        self.metrics.failed.set(1)
        self.readiness.end(f"storage failed: {error}")
        answer = StorageFailed(f"the broker's storage failed: {error}")
        for partition in self.partitions.values():
            partition.give_up(answer, answer)
        self._follower.give_up(answer)
        self._flushes.end(error)
        self.failed.set_result(error)
        log.error("storage failed; the broker stops", error=str(error), exc_info=error)

    def isolate(self, partition: Partition, error: Exception) -> None:
        """Ends the service of a partition in this run after an unexpected error; the others continue.

        Its log is not written again before a start has recovered it. Another member of its ISR leads, if
        the ISR has another member.
        """
        partition.log.writer.abandon()
        log.error(
            "a partition failed unexpectedly and is no longer served on this broker; a restart of the broker "
            "recovers its log and opens it again; please report it",
            stream=partition.name, partition=partition.partition, exc_info=error,
        )  # fmt: skip
        if not partition.removed:
            self._follower.halt(
                partition,
                f"an unexpected error ({type(error).__name__}); restart the broker to open it again",
            )

    # --- for doors

    def listen(self, listener: PartitionListener) -> None:
        """Reports every partition that this broker leads to `listener`, now and in the future."""
        self._hosted.listen(listener)

    def leading(self, stream_id: bytes, partition: int) -> Partition:
        """The partition, if this broker leads it; otherwise raises a typed error with the reason."""
        found = self.partitions.get((stream_id, partition))
        if found is None or not found.leads or found.stopped:
            raise self._refusal(found, stream_id, partition)
        return found

    def replica(self, stream_id: bytes, partition: int) -> Partition:
        """The partition, if this broker has a replica; otherwise raises a typed error with the reason."""
        found = self.partitions.get((stream_id, partition))
        if found is None or found.stopped:
            raise self._refusal(found, stream_id, partition)
        return found

    def _refusal(self, found: Partition | None, stream_id: bytes, partition: int) -> TidelogError:
        if found is not None and self.failed.done():
            return StorageFailed("the broker's storage failed")
        if self._stopping:
            return Stopping("the broker is stopping", retry_after_ms=500)
        if found is not None:
            return found.not_leader()
        return self._hosted.refusal(stream_id, partition, self.controller.image)

    def append(self, partition: Partition, append: Append) -> None:
        """Queues an append; `done` is called once the outcome is known. Raises the errors of `check_room`."""
        if self._reserve is not None:
            self._reserve.check_records()
        self._rounds.check_room(append.bytes)
        partition.submit(append)
        self._maintenance.writing[partition] = None
        self._rounds.request(partition, append.bytes)

    def check_room(self, partition: Partition, size: int) -> None:
        """Raises `ResourceExhausted`, `DiskFull` or `Stopping` if an append of that size would be refused."""
        if self._reserve is not None:
            self._reserve.check_records()
        self._rounds.check_room(size)
        partition.check_room(size)

    def deadline(self, timeout_ms: int | None) -> float:
        """The time on the event loop's clock at which an append that arrives now stops waiting."""
        return self._loop.time() + (self.limits.produce_timeout if timeout_ms is None else timeout_ms / 1000)

    def in_catch_up_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Calls `function` in a thread for slow reads.

        Raises the errors of `function`, and `Stopping` when the broker stops before the call begins.
        """
        return self._loop.run_in_executor(self._threads.catch_up, function, *args)

    async def delete_records(self, partition: Partition, before: int) -> int:
        """Deletes the records below offset `before` on every in-sync replica; returns the new start (R11)."""
        return await self._deletion.delete(partition, before, self.limits.produce_timeout)

    async def applied(self, version: int) -> None:
        """Waits until the partitions here are as the image of `version` says."""
        await self._follower.applied(version)

    # --- metrics and debug state

    def _samples(self) -> Iterator[Sample]:
        yield from broker_samples(
            self._hosted, self._rounds, self._flushes, self._store, self.controller.image.version
        )
        yield from clock_samples(self.clock, self._maintenance.retention)
        yield from load_samples(self.decoding, self.projections, self.answers, self.checks)
        yield from tls_samples(self._tls_files)

    def state(self) -> dict[str, Any]:
        """The state of the broker as it knows it, for /debug/state."""
        return broker_state(
            self.broker_id,
            self.controller.image,
            self._hosted,
            self._rounds,
            self._flushes,
            ready=self.readiness.reason() or "yes",
            clocks={"clock": repr(self.clock), "retention": repr(self._maintenance.retention)},
        )
