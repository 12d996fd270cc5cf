"""The part of a broker in the metadata quorum: the image, changes to it, and the session of this run (M6).

It is the same for every size of cluster: a broker alone is the only voter and is elected at once. It is a
list of parts. `driver` performs Raft and `committed_image` is what the committed entries add up to;
`leadership` says whether this broker is the controller, `changes` proposes and `request_handler` answers
while it is. `transport` connects it to the other brokers, `membership.session` registers this run, and
`run_end` ends it. Neighbours: `opening` opens the log below it, `host` is the broker around it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

import structlog

from tidelog.errors import Stopping, TidelogError, Unavailable
from tidelog.model import id_text
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import encode_image
from tidelog_broker.errors import BrokerError, StorageFailure
from tidelog_broker.log_limit import LogLimit
from tidelog_broker.membership.addresses import Address, AddressBook
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.session import RegistrationRefused, Session
from tidelog_broker.membership.wire import Answer, Confirm, Done, Known, Request
from tidelog_broker.model import Entry, Snapshot, Voter
from tidelog_broker.peers.connection import Accept
from tidelog_broker.peers.hello import ConnectionKind, Identity
from tidelog_broker.quorum.active_controller import ActiveController
from tidelog_broker.quorum.changes import CHANGE_SECONDS_MAX, MetadataChanges
from tidelog_broker.quorum.committed_image import CommittedImage
from tidelog_broker.quorum.controller import Change, Decision, Watcher
from tidelog_broker.quorum.driver import RaftDriver
from tidelog_broker.quorum.host import QuorumHost
from tidelog_broker.quorum.leadership import ControllerLeadership
from tidelog_broker.quorum.leaving import hand_over, has_successors
from tidelog_broker.quorum.options import QuorumOptions
from tidelog_broker.quorum.producer_id_blocks import ProducerIdBlocks
from tidelog_broker.quorum.request_handler import RequestHandler
from tidelog_broker.quorum.run_end import RunEnd
from tidelog_broker.quorum.transport import QuorumTransport
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.raft.log import RaftLog

log = structlog.get_logger(__name__)

START_PAUSE_SECONDS: Final = 0.05
"""How often a starting broker asks what is committed, while the answer is not known yet."""

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a stop waits for pending changes."""

STEP_ASIDE_SECONDS_MAX: Final = 5.0
"""How long a stopping broker waits until other brokers lead the partitions that it leads."""


class QuorumController:
    """The `Controller` of a broker. Belongs to one event loop; `threads` is one thread, for the files."""

    def __init__(
        self,
        directory: DataDirectory,
        raft_log: RaftLog,
        threads: Executor,
        host: QuorumHost,
        *,
        options: QuorumOptions,
        incarnation: bytes,
        rng: random.Random,
        clock: ClusterClock,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._directory = directory
        self._host = host
        self.me = Voter(directory.broker_id, directory.directory_id)
        self.incarnation = incarnation
        self.clock = clock
        """The cluster's clock as this broker knows it, and its own (R18)."""
        addresses = AddressBook()
        self._committed = CommittedImage(raft_log.snapshot)
        self.leadership = ControllerLeadership(
            self.me.broker_id, self._raft, self._committed, addresses, options
        )
        self._changes = MetadataChanges(self._committed, self.leadership, self._raft, options.pending_max)
        requests = RequestHandler(
            self._committed, self.leadership, self._changes, clock, lambda: self.now_ms, host.serve_call
        )
        self._run_end = RunEnd(self.me, directory, threads, raft=self._raft, ended=self._run_ended)
        self.transport = QuorumTransport(
            Identity(self.me.broker_id, directory.cluster_id, self.me.directory_id, incarnation),
            rng,
            seeds=options.seeds,
            addresses=addresses,
            image=lambda: self.image,
            raft=self._raft,
            answer=requests.answer,
            starts=lambda: directory.meta.start_count,
            run_end=self._run_end,
            peer_refused=host.peer_refused,
            tls=options.tls,
        )
        self.connections = self.transport.connections
        self.addresses = addresses
        self.session = Session(
            self.me.broker_id,
            incarnation,
            self.transport.controller_client.ask,
            lambda: self.image,
            clock,
            self.transport.failure_reporter,
            host,
        )
        self.watch(lambda old, new: self.session.image_changed())
        self._driver = RaftDriver(
            self.me,
            raft_log,
            threads,
            self,
            self.transport.send,
            reserve=directory.reserve,
            rng=rng,
            snapshot_entries=options.snapshot_entries,
        )
        self._producer_ids = ProducerIdBlocks(self.me.broker_id, self.ask)
        self._log_limit = LogLimit(self._loop.time)
        self._closed = False
        self._failure: StorageFailure | None = None

    def __repr__(self) -> str:
        return f"<QuorumController {self.image!r} {self._driver!r} {self._changes!r}>"

    def _raft(self) -> RaftDriver:
        """For the parts below the driver, which is built last."""
        return self._driver

    # --- what the rest of the broker sees

    @property
    def image(self) -> ClusterImage:
        return self._committed.now

    @property
    def leader(self) -> int | None:
        return self.leadership.leader

    def state(self) -> dict[str, Any]:
        """The voters by broker, with their data directories; for /debug/state."""
        voters = self._driver.node.configuration.voters
        return {"voters": {str(voter.broker_id): id_text(voter.directory_id) for voter in voters}}

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(voter.broker_id for voter in self._driver.node.configuration.voters)

    @property
    def active(self) -> ActiveController | None:
        """None: this broker is not the controller, or does not know yet that it is."""
        return self.leadership.active

    @property
    def now_ms(self) -> int:
        """The clock of sessions and reports."""
        return int(self._loop.time() * 1000)

    async def change(self, decision: Decision) -> Change:
        return await self._changes.change(decision)

    async def propose(self, commands: Sequence[Command]) -> ClusterImage:
        return await self._changes.propose(commands)

    async def confirm(self) -> None:
        """As `MetadataChanges.confirm`."""
        await self._changes.confirm()

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        return self._committed.watch(watcher)

    async def allocate_producer_id(self) -> int:
        return await self._producer_ids.allocate()

    async def newest(self) -> ClusterImage:
        done = await self.ask(Confirm(), CHANGE_SECONDS_MAX)
        assert isinstance(done, Done), done
        try:
            await self.until(lambda: self.image.version >= done.version, CHANGE_SECONDS_MAX)
        except TimeoutError:
            raise Unavailable(
                f"this broker has not received version {done.version} of the metadata yet; try again",
                retry_after_ms=500,
            ) from None
        return self.image

    async def until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        """Waits for `condition`, checked whenever image or leader change. Raises TimeoutError."""
        await self._committed.until(condition, seconds)

    async def ask(self, request: Request, seconds: float) -> Answer:
        """As `membership.controller_client.ControllerClient.ask`. Also raises `Stopping`."""
        if self._closed:
            raise Stopping("the broker is stopping")
        return await self.transport.controller_client.ask(request, seconds)

    # --- starting

    async def listen(
        self,
        host: str,
        port: int,
        acceptors: Mapping[ConnectionKind, Accept],
        advertised: tuple[str, int | None],
    ) -> Address:
        """As `QuorumTransport.listen`."""
        return await self.transport.listen(host, port, acceptors, advertised)

    async def start(self) -> None:
        """Takes part, and returns when the image has everything that was committed when this run began.

        So the image places every replica here that an earlier run had, and each later placement is new. An
        entry of this term is not enough: a leader first tells how far it knows this log to be equal. An
        empty log returns at once: its broker registers first, and receives entries then (M1). But if its
        broker has started before and the cluster knows the broker, the start waits for the log (M2): the
        broker may hold replicas. Raises `RegistrationRefused` if a seed refuses this broker, `RunOver`,
        `Stopping`.
        """
        await self.transport.controller_client.start()
        self._driver.start()
        await self.until(lambda: self._empty or self.leadership.current or self._ends)
        self._check_run()
        if self._empty and self._directory.meta.start_count > 0:
            await self._relearn()
        while not self._empty:
            try:
                await self.newest()
                return
            except TidelogError as error:
                self._check_run()
                if not error.retriable and error.definite:
                    raise
                log.debug("it is not known yet what is committed", reason=str(error))
                await asyncio.sleep(START_PAUSE_SECONDS)

    async def _relearn(self) -> None:
        """Waits until this broker's log, which was set aside or never filled, has what the cluster has."""
        while self._empty:
            try:
                known = await self.ask(Known(self.me.broker_id, self.me.directory_id), CHANGE_SECONDS_MAX)
            except TidelogError as error:
                self._check_run()
                log.debug("it is not known yet whether the cluster knows this broker", reason=str(error))
                await asyncio.sleep(START_PAUSE_SECONDS)
                continue
            assert isinstance(known, Done), known
            if known.version == 0:
                # So the cluster counts on no replica here.
                return
            with suppress(TimeoutError):
                await self.until(
                    lambda: (not self._empty and self.leadership.current) or self._ends, CHANGE_SECONDS_MAX
                )
            self._check_run()

    async def register(self, registration: Registration) -> None:
        """Returns when the image here shows this run (R10). Raises `RegistrationRefused`."""
        session = self.session
        await session.register(registration)
        await self.until(lambda: session.registered or bool(session.over) or self._ends)
        self._check_run()
        if session.over:
            raise RegistrationRefused(f"this run of the broker is over: {session.over}")

    @property
    def _empty(self) -> bool:
        return self._driver.node.log.last_index == 0

    @property
    def _ends(self) -> bool:
        return self._failure is not None or self._run_end.reason is not None

    def _check_run(self) -> None:
        """Raises the error that ends this run, if there is one."""
        if self._failure is not None:
            raise self._failure
        if self._run_end.reason is not None:
            raise self._run_end.reason

    # --- stopping

    async def step_aside(self) -> None:
        """Gives up the leaderships that other brokers can take, and waits for a while until they do."""
        if not self.connections.open or not self.session.registered:
            return
        if not await self.session.step_aside():
            log.warning("the stop could not be announced: no controller answers")
            return
        try:
            await self.until(
                lambda: not has_successors(self.image, self.me.broker_id), STEP_ASIDE_SECONDS_MAX
            )
        except TimeoutError:
            log.warning(
                "this broker stops while it still leads some partitions; their followers take over once they "
                "notice"
            )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._changes.stop(CLOSE_SECONDS_MAX)
        await self.transport.controller_client.stop()
        await self._run_end.stop()
        await self.session.stop()
        await self.transport.failure_reporter.stop()
        if self.active is not None and self._failure is None:
            await hand_over(self._driver, self.me, self.connections, self._committed)
        await self._driver.close()
        await self.connections.stop("the broker is stopping")

    # --- of `driver.Machine`

    def apply(self, entries: Sequence[Entry]) -> None:
        self._committed.apply(entries, self.active)

    def restore(self, snapshot: Snapshot) -> None:
        self._committed.restore(snapshot)

    def encoder(self) -> Callable[[], bytes]:
        image = self.image
        return lambda: encode_image(image)

    def ticked(self) -> None:
        self.transport.ticked()
        if self.active is not None and not self._closed:
            try:
                self.active.keep_up(self.now_ms)
            except Exception as error:
                # A bug here must not end a broker whose partitions are well, and look like a broken disk.
                left_out = self._log_limit.left_out(type(error).__name__)
                if left_out is not None:
                    log.exception("the controller's upkeep failed; it tries again", left_out_before=left_out)

    def changed(self) -> None:
        self.leadership.update()
        self.transport.connect()
        self._committed.look()

    def withdrawn(self, saved_index: int, error: OSError) -> None:
        self.leadership.end()
        self._changes.withdraw(saved_index, error)

    def failed(self, error: StorageFailure) -> None:
        self._failure = error
        self.leadership.end()
        self._changes.fail(error)
        self._committed.look()
        self._host.fail(error)

    def forgotten(self, reason: str) -> None:
        self._run_end.forgotten(reason)

    def _run_ended(self, error: BrokerError) -> None:
        """Answers what waits; nothing is proposed any more."""
        self.leadership.end()
        self._changes.end_run(error)
        self._committed.look()
        self._host.end_run(error)
