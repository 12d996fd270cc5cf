"""The controller of a broker: its part in the metadata quorum, and the image (M6).

One for every size of cluster: a broker alone is the only voter and is elected at once. It
is a list of parts: `driver` performs Raft, `committed_image` is what it applies to,
`active_controller` is what only the leader of the quorum does, `membership.links` connects
the brokers, `transport` says what they mean to each other, `membership.controller_client` finds the
controller, `request_handler` says what requests mean to it, `membership.session` registers this
broker. `opening` opens the log under it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final, NamedTuple

import structlog

from tidelog.errors import (
    ResourceExhausted,
    Stopping,
    StorageFailed,
    TidelogError,
    TimedOut,
    Unavailable,
)
from tidelog.model import id_text
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.registration import Registration
from tidelog_broker.core.metadata.snapshot import encode_image
from tidelog_broker.core.raft.errors import Busy, NotRaftLeader
from tidelog_broker.errors import BrokerError, NotController, StorageFailure
from tidelog_broker.log_limit import LogLimit
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.links import Address
from tidelog_broker.membership.session import RegistrationRefused
from tidelog_broker.membership.wire import AllocateBlock, Answer, Block, Confirm, Done, Known, Request
from tidelog_broker.model import Entry, Snapshot, Voter
from tidelog_broker.quorum.active_controller import ActiveController
from tidelog_broker.quorum.committed_image import CommittedImage
from tidelog_broker.quorum.controller import PRODUCER_ID_BLOCK, Change, Decision, Watcher
from tidelog_broker.quorum.driver import SNAPSHOT_ENTRIES, RaftDriver
from tidelog_broker.quorum.pending_changes import refused_by_disk
from tidelog_broker.quorum.request_handler import RequestHandler, ServeCall
from tidelog_broker.quorum.run_end import RunEnd
from tidelog_broker.quorum.transport import QuorumTransport
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.raft.log import RaftLog

log = structlog.get_logger(__name__)

PENDING_MAX: Final = 10_000
"""Changes on their way to a majority's disks; over it they are refused (retriable)."""

CHANGE_SECONDS_MAX: Final = 10.0
"""How long a change waits for its commit; after that nobody knows what becomes of it."""

ELECTION_SECONDS_MAX: Final = 3.0
"""How long a change waits for a controller."""

START_PAUSE_SECONDS: Final = 0.05
"""How often a starting broker asks what is committed, while nobody knows."""

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a stop waits for changes that are on their way."""

STEP_ASIDE_SECONDS_MAX: Final = 5.0
"""How long a stopping broker waits for others to lead what it leads."""

HAND_OVER_SECONDS_MAX: Final = 1.0
"""How long a stopping controller waits for another one."""


class QuorumOptions(NamedTuple):
    """What of the settings concerns the quorum."""

    voters_wanted: int = 3
    seeds: tuple[Address, ...] = ()
    """Peer listeners of other brokers, to begin with."""
    formed: bool = True
    """It is known outside of all volumes that the cluster was formed: the only voter may get company (M1)."""
    snapshot_entries: int = SNAPSHOT_ENTRIES
    pending_max: int = PENDING_MAX


class QuorumController:
    """See the module. Of one event loop; the files are written in `threads`, which has one thread."""

    def __init__(
        self,
        directory: DataDirectory,
        raft_log: RaftLog,
        threads: Executor,
        *,
        fail: Callable[[BaseException], None],
        ended: Callable[[BrokerError], None],
        options: QuorumOptions,
        incarnation: bytes,
        rng: random.Random,
        clock: ClusterClock,
    ) -> None:
        """`fail` is told once that nothing is known of the disk, `ended` that this run must not go on."""
        self._loop = asyncio.get_running_loop()
        self._directory = directory
        self._options = options
        self._fail_broker = fail
        self._tell_end = ended
        self.me = Voter(directory.broker_id, directory.directory_id)
        self.incarnation = incarnation
        self.clock = clock
        """What this broker knows of the cluster's clock, and its own (R18)."""
        self._committed = CommittedImage(raft_log.snapshot)
        self._waiting = self._committed.waiting
        self._active: ActiveController | None = None
        requests = self._requests = RequestHandler(self)
        self._run_end = RunEnd(self.me, directory, threads, raft=lambda: self._driver, ended=self._run_ended)
        self.transport = QuorumTransport(
            self.me,
            directory.cluster_id,
            incarnation,
            rng,
            seeds=options.seeds,
            image=lambda: self.image,
            raft=lambda: self._driver,
            answer=requests.answer,
            starts=lambda: directory.meta.start_count,
            superseded=self._run_end.superseded,
            put_back=self._run_end.put_back,
            clock=clock,
        )
        self.links = self.transport.links
        self.membership = self.transport.membership
        self.formed = options.formed
        """As in the options, and from now on."""
        self.watch(lambda old, new: self.membership.imaged())
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
        self._producer_ids = range(0)
        self._producer_lock = asyncio.Lock()
        self._log_limit = LogLimit(self._loop.time)
        self._closed = False
        self._failure: StorageFailure | None = None

    def __repr__(self) -> str:
        return f"<QuorumController {self.image!r} {self._driver!r} {self._waiting!r}>"

    # --- what the rest of the broker sees

    @property
    def image(self) -> ClusterImage:
        return self._committed.now

    @property
    def leader(self) -> int | None:
        return self.transport.leader

    def state(self) -> dict[str, Any]:
        """Who votes, by broker, with which data directory; for /debug/state."""
        voters = self._driver.node.configuration.voters
        return {"voters": {str(one.broker_id): id_text(one.directory_id) for one in voters}}

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(voter.broker_id for voter in self._driver.node.configuration.voters)

    @property
    def active(self) -> ActiveController | None:
        """None: this broker is not the controller, or does not know yet that it is."""
        return self._active

    @property
    def now_ms(self) -> int:
        """The clock of sessions and reports."""
        return int(self._loop.time() * 1000)

    def session_good(self) -> bool:
        """The controller takes this broker for alive, by this broker's clock (N5)."""
        return self.membership.session_good()

    def serve_calls(self, serve: ServeCall) -> None:
        """Who does what other brokers forward while this one is the controller."""
        self._requests.serve_call = serve

    async def change(self, decision: Decision) -> Change:
        active = self._accepting() or await self._elected()
        try:
            command = decision(active.tip)
        except Exception:
            # The refusal may rest on a change that is not committed yet.
            await self._submit(active, [])
            raise
        image = await self._submit(active, [] if command is None else [command])
        return Change(image, command)

    async def propose(self, commands: Sequence[Command]) -> ClusterImage:
        active = self._accepting() or await self._elected()
        return await self._submit(active, commands)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        return self._committed.watch(watcher)

    async def allocate_producer_id(self) -> int:
        async with self._producer_lock:
            if not self._producer_ids:
                request = AllocateBlock(self.me.broker_id, PRODUCER_ID_BLOCK)
                block = await self.ask(request, CHANGE_SECONDS_MAX)
                assert isinstance(block, Block), block
                self._producer_ids = range(block.first, block.first + block.count)
            producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
            return producer_id

    async def confirm(self) -> None:
        """Returns when the image here has everything that was committed when it was asked (ReadIndex).

        Raises `NotController`: only the controller can know, and it asks a majority (M5).
        """
        try:
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                await self._driver.read()
        except (NotRaftLeader, Busy, ConnectionError, TimeoutError) as error:
            raise self.elsewhere() from error

    async def newest(self) -> ClusterImage:
        done = await self.ask(Confirm(), CHANGE_SECONDS_MAX)
        assert isinstance(done, Done), done
        try:
            await self.until(lambda: self.image.version >= done.version, CHANGE_SECONDS_MAX)
        except TimeoutError:
            raise Unavailable(
                f"this broker has not heard of version {done.version} of the metadata yet", retry_after_ms=500
            ) from None
        return self.image

    async def until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        """Waits for `condition`, looked at whenever image or leader change. Raises TimeoutError."""
        await self._committed.until(condition, seconds)

    # --- starting and stopping

    async def listen(self, host: str, port: int) -> int:
        """Takes connections of other brokers; the port that was bound. Raises OSError."""
        return await self.links.listen(host, port)

    async def start(self) -> None:
        """Takes part, and returns when the image has everything that was committed when this run began.

        So what it places here holds every replica that an earlier run had, and what is placed here later is
        new. An entry of this term is not enough: a leader says first how far it knows that this log goes.
        An empty log returns at once: its broker registers first, and is sent entries then (M1). But that of
        a broker which has started before is waited for if the cluster knows the broker (M2): it may hold
        replicas. Raises `RegistrationRefused` if a seed will have nothing to do with this broker, `RunOver`,
        `Stopping`.
        """
        await self.transport.controller_client.start()
        self._driver.start()
        await self.until(lambda: self._empty or self._current or self._ends)
        self._alive()
        if self._empty and self._directory.meta.start_count > 0:
            await self._relearn()
        while not self._empty:
            try:
                await self.newest()
                return
            except TidelogError as error:
                self._alive()
                if not error.retriable and error.definite:
                    raise
                log.debug("what is committed is not known yet", reason=str(error))
                await asyncio.sleep(START_PAUSE_SECONDS)

    async def _relearn(self) -> None:
        """Waits until this broker's log, which was set aside or never filled, has what the cluster has."""
        while self._empty:
            try:
                known = await self.ask(Known(self.me.broker_id, self.me.directory_id), CHANGE_SECONDS_MAX)
            except TidelogError as error:
                self._alive()
                log.debug("it is not known yet whether this broker is known", reason=str(error))
                await asyncio.sleep(START_PAUSE_SECONDS)
                continue
            assert isinstance(known, Done), known
            if known.version == 0:
                # Then no replica is here that anybody counts on.
                return
            with suppress(TimeoutError):
                await self.until(
                    lambda: (not self._empty and self._current) or self._ends, CHANGE_SECONDS_MAX
                )
            self._alive()

    async def register(self, registration: Registration) -> None:
        """Returns when the image here shows this run (R10). Raises `RegistrationRefused`."""
        membership = self.membership
        await membership.register(registration)
        await self.until(lambda: membership.registered or bool(membership.over) or self._ends)
        self._alive()
        if membership.over:
            raise RegistrationRefused(f"this run of the broker is over: {membership.over}")

    @property
    def _ends(self) -> bool:
        return self._failure is not None or self._run_end.reason is not None

    def _alive(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._run_end.reason is not None:
            raise self._run_end.reason

    async def step_aside(self) -> None:
        """Has leaderships that others can take go to them, and waits until they have, or not too long."""
        if not self.links.open or not self.membership.registered:
            return
        if not await self.membership.step_aside():
            log.warning("no controller is there to be told of the stop")
            return
        try:
            await self.until(lambda: not self._has_heirs, STEP_ASIDE_SECONDS_MAX)
        except TimeoutError:
            log.warning("some partitions are still led here; their followers find out")

    @property
    def _has_heirs(self) -> bool:
        """Some partition is led here that another member of its ISR could lead."""
        me, brokers = self.me.broker_id, self.image.brokers
        heirs = {broker.id for broker in brokers.values() if broker.may_join and broker.id != me}
        return any(
            partition.leader == me and not heirs.isdisjoint(partition.isr)
            for stream in self.image.streams.values()
            for partition in stream.partitions
        )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._waiting.drained(CLOSE_SECONDS_MAX)
        await self.transport.controller_client.stop()
        await self._run_end.stop()
        await self.membership.stop()
        await self._hand_over()
        await self._driver.close()
        await self.links.stop("the broker is stopping")

    async def _hand_over(self) -> None:
        """A voter that has everything leads next, so that nobody has to notice that this one is gone."""
        node = self._driver.node
        others = [voter for voter in node.configuration.voters if voter != self.me]
        if self._active is None or not others or self._failure is not None:
            return
        open_now = self.links.open
        for voter in others:
            # It may have ceased to lead while the last one was waited for.
            if voter.broker_id in open_now and node.leads:
                node.transfer(voter)
                self._driver.wake()
                try:
                    # Until then this broker's vote may be needed.
                    await self.until(
                        lambda: self.leader not in (None, self.me.broker_id), HAND_OVER_SECONDS_MAX
                    )
                except TimeoutError:
                    continue
                return

    @property
    def _empty(self) -> bool:
        return self._driver.node.log.last_index == 0

    @property
    def _current(self) -> bool:
        node = self._driver.node
        known = node.leader is not None and node.log.term(node.log.commit) == node.term
        return known and self._driver.applied == node.log.commit

    # --- changing

    def _accepting(self) -> ActiveController | None:
        """None: this broker may become the controller yet. Raises what refuses every change now."""
        if self._failure is not None:
            raise StorageFailed(f"the broker is ending: {self._failure}")
        if self._run_end.reason is not None:
            raise Stopping(f"the broker is ending: {self._run_end.reason}")
        if self._closed:
            raise Stopping("the broker is stopping; ask again when it is back")
        if len(self._waiting) >= self._options.pending_max:
            raise ResourceExhausted(
                f"{self._options.pending_max} metadata changes wait to be written; try again",
                retry_after_ms=100,
            )
        if self._active is not None and self._driver.refusal is not None and len(self.voters) > 1:
            # What is proposed now waits behind a write that the disk refuses.
            raise refused_by_disk(self._driver.refusal)
        return self._active

    def elsewhere(self) -> NotController:
        """What a broker says that is asked and is not the controller."""
        leader = self.leader
        if leader == self.me.broker_id:
            leader = None
        return NotController(leader, None if leader is None else self.links.address(leader))

    async def _elected(self) -> ActiveController:
        """The duties of this broker, once it is known whether it has them."""

        def known() -> bool:
            decided = self._active is not None or self.leader not in (None, self.me.broker_id)
            return decided or self._driver.refusal is not None

        try:
            await self.until(known, ELECTION_SECONDS_MAX)
        except TimeoutError:
            raise self.elsewhere() from None
        active = self._accepting()
        if active is not None:
            return active
        if self._driver.refusal is not None and self.leader in (None, self.me.broker_id):
            raise refused_by_disk(self._driver.refusal)
        raise self.elsewhere()

    async def _submit(self, active: ActiveController, commands: Sequence[Command]) -> ClusterImage:
        try:
            index = active.propose(commands) if commands else active.node.log.last_index
        except Busy as error:
            raise ResourceExhausted(f"{error}; try again", retry_after_ms=100) from error
        except NotRaftLeader as error:
            raise self.elsewhere() from error
        if index <= self._driver.applied:
            return self.image
        term = active.node.log.term(index)
        assert term is not None, (index, active)
        done = self._waiting.wait(index, term)
        try:
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                # A caller that stops waiting does not stop the change.
                return await asyncio.shield(done)
        except TimeoutError:
            done.cancel()
            raise TimedOut("the change was not committed in time; it may be later") from None

    # --- of the driver

    def apply(self, entries: Sequence[Entry]) -> None:
        self._committed.apply(entries, self._active)

    def restore(self, snapshot: Snapshot) -> None:
        self._committed.restore(snapshot)

    def encoder(self) -> Callable[[], bytes]:
        image = self.image
        return lambda: encode_image(image)

    def ticked(self) -> None:
        self.transport.ticked()
        if self._active is not None and not self._closed:
            try:
                self._active.keep_up(self.now_ms)
            except Exception as error:
                # A bug here must not end a broker whose partitions are well, and look like a broken disk.
                left_out = self._log_limit.left_out(type(error).__name__)
                if left_out is not None:
                    log.exception("the controller's upkeep failed; it tries again", left_out_before=left_out)

    def changed(self) -> None:
        driver, active = self._driver, self._active
        node = driver.node
        if active is not None and (active.node is not node or not node.leads or node.term != active.term):
            self._active = None
            log.info("this broker is not the controller any more", term=active.term)
        if self._active is None and node.leads and self._current:
            self._active = ActiveController(
                driver,
                self.image,
                voters_wanted=self._options.voters_wanted,
                formed=lambda: self.formed,
            )
            log.info("this broker is the controller", term=node.term, voters=self.voters)
        self.transport.link()
        self._committed.look()

    def withdrawn(self, saved_index: int, error: OSError) -> None:
        self._active = None
        self._waiting.refuse_behind(saved_index, refused_by_disk(error))

    def failed(self, error: StorageFailure) -> None:
        self._failure = error
        self._active = None
        self._waiting.refuse_behind(0, StorageFailed(f"the metadata log failed: {error}"))
        self._committed.look()
        self._fail_broker(error)

    def forgotten(self, reason: str) -> None:
        self._run_end.forgotten(reason)

    def _run_ended(self, error: BrokerError) -> None:
        """What waits is told, and nothing is proposed any more."""
        self._active = None
        self._waiting.refuse_behind(0, Stopping(f"the broker is ending: {error}"))
        self._committed.look()
        self._tell_end(error)

    # --- the others

    async def ask(self, request: Request, seconds: float) -> Answer:
        """Asks the controller, wherever it is; see `membership.controller_client`. Raises `Stopping`, too."""
        if self._closed:
            raise Stopping("the broker is stopping")
        return await self.transport.controller_client.ask(request, seconds)
