"""A broker's own membership: it registers its run, sends heartbeats, and says what it has against others.

What it asks for, the controller decides, wherever that is. Its session is good while heartbeats
are answered, by its own clock: a broker that cannot know that it is believed to be alive
must not speak as a leader where that matters (N5). With a heartbeat it says what speaks against its
leading (R6): damage, and a clock that is off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from tidelog.errors import IndefiniteError, InvalidRequest, TidelogError, Unavailable
from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, ReplicaName
from tidelog_broker.core.metadata.handovers import Led
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.liveness import HEARTBEAT_MS, SESSION_MS
from tidelog_broker.core.metadata.registration import Registration
from tidelog_broker.errors import BrokerError, NotConnected, NotController
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.wire import Answer, Done, Heartbeat, Register, Report, Request, Settled
from tidelog_broker.peers.hello import ConnectionKind
from tidelog_broker.peers.watch import Evidence

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS: Final = HEARTBEAT_MS / 1000
SESSION_SECONDS: Final = SESSION_MS / 1000

TAKEN_SECONDS_MAX: Final = 3 * SESSION_SECONDS
"""How long a start waits for the session of another broker of its id to end."""

AskController = Callable[[Request, float], Awaitable[Answer]]
"""Asks the controller, for so many seconds."""


class RegistrationRefused(BrokerError):
    """The controller will not have this broker; the message says what to do."""


class Membership:
    """See the module. Of one event loop."""

    def __init__(
        self,
        incarnation: bytes,
        ask: AskController,
        image: Callable[[], ClusterImage],
        clock: ClusterClock,
    ) -> None:
        """`clock` is told what the controller says of the cluster's."""
        self._loop = asyncio.get_running_loop()
        self.incarnation = incarnation
        self._ask = ask
        self._image = image
        self._clock = clock
        self._registration: Registration | None = None
        self._seen = False
        """The image has shown this run."""
        self.over = ""
        """Why this run is of the cluster no more."""
        self.stopping = False
        self._good_until = 0.0
        self._session_told = False
        self._session_end: asyncio.TimerHandle | None = None
        self.on_session: Callable[[bool], None] = lambda good: None
        """Told when the session begins to be good, and when it is good no more."""
        self.damaged: Callable[[], tuple[ReplicaName, ...]] = tuple
        """Which replicas here have a damaged range (2c)."""
        self.on_wishes: Callable[[tuple[Led, ...]], None] = lambda wishes: None
        """Told which leaderships the controller wishes to be settled (N5)."""
        self._task: asyncio.Task[None] | None = None
        self._accused: dict[tuple[int, ConnectionKind], tuple[bytes, Evidence]] = {}
        """By broker and connection: the run, and what stands against it."""
        self._reports: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        state = self.over or ("registered" if self.registered else "not registered")
        return f"<Membership {state} session_good={self.session_good()}>"

    @property
    def registered(self) -> bool:
        """R10: the image here shows this run."""
        if self._registration is None:
            return False
        known = self._image().brokers.get(self._registration.broker_id)
        return known is not None and known.incarnation == self.incarnation

    def session_good(self) -> bool:
        """The controller takes this broker for alive, by this broker's clock."""
        return self._loop.time() < self._good_until

    async def register(self, registration: Registration) -> None:
        """Until the controller has taken it; heartbeats follow. Raises `RegistrationRefused`."""
        self._registration = registration
        deadline = self._loop.time() + TAKEN_SECONDS_MAX
        while True:
            asked_us = self._clock.elapsed()
            request = Register.of(registration, self._clock.wall())
            try:
                self._told_time(await self._ask(request, SESSION_SECONDS), asked_us)
                break
            except (NotController, NotConnected, IndefiniteError) as error:
                log.debug("not registered yet", reason=str(error))
                deadline = self._loop.time() + TAKEN_SECONDS_MAX
            except TidelogError as error:
                if not error.retriable or (isinstance(error, Unavailable) and self._loop.time() >= deadline):
                    raise RegistrationRefused(f"the cluster refuses this broker: {error}") from error
            await asyncio.sleep(HEARTBEAT_SECONDS)
        self._heard(self._loop.time())
        self._task = asyncio.create_task(self._stay(), name="heartbeats")

    async def step_aside(self) -> bool:
        """Tells the controller, and goes on telling it, that this broker is about to stop.

        False: no controller has heard it, and one would have been elected in the time.
        """
        self.stopping = True
        before = self._good_until
        await self._beat(self._loop.time())
        return self._good_until > before

    async def settled(self, settled: Sequence[Led]) -> None:
        """Tells the controller what it may give to others now. Raises `TidelogError`."""
        assert self._registration is not None, "it leads"
        await self._ask(
            Settled(self._registration.broker_id, self.incarnation, tuple(settled)), HEARTBEAT_SECONDS
        )

    async def stop(self) -> None:
        if self._session_end is not None:
            self._session_end.cancel()
        for task in (self._task, *self._reports):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _stay(self) -> None:
        while not self.over:
            began = self._loop.time()
            try:
                await self._beat(began)
            except Exception:
                log.exception("a heartbeat failed unexpectedly; the next one is sent")
            await asyncio.sleep(max(0.0, began + HEARTBEAT_SECONDS - self._loop.time()))

    async def _beat(self, now: float) -> None:
        registration = self._registration
        assert registration is not None, "registered once"
        registered = self.registered
        if self._seen and registration.broker_id not in self._image().brokers:
            # Else it would come back at once, uncalled for (R6).
            self._end("it was unregistered; format it again to use it")
            return
        clock_us = self._clock.wall()
        beat = Heartbeat(
            registration.broker_id,
            self.incarnation,
            self.stopping,
            unanswered=not self.session_good(),
            damaged=self.damaged(),
            clock_off=self._clock.off,
            clock_yields=self._clock.yields,
            clock_us=clock_us,
            feature_level=FEATURE_LEVEL,
        )
        asked_us = self._clock.elapsed()
        try:
            request = beat if registered else Register.of(registration, clock_us)
            answer = await self._ask(request, SESSION_SECONDS / 2)
        except InvalidRequest as error:
            if self._seen:
                # Who is no member any more is not sent the entry that says so.
                self._end(str(error))
            return
        except TidelogError as error:
            if not error.retriable and not registered and self._seen:
                self._end(str(error))
            # Else the image shows sooner or later whose word counts.
            return
        self._heard(now)
        self._told_time(answer, asked_us)
        if isinstance(answer, Done) and answer.wished:
            self.on_wishes(answer.wished)
        for accused in list(self._accused):
            self._report(*accused)

    def _heard(self, asked: float) -> None:
        """The controller has answered what was asked at that time."""
        self._good_until = asked + SESSION_SECONDS
        if self._session_end is None:
            self._session_end = self._loop.call_at(self._good_until, self._look_at_session)
        self._tell_session()

    def _told_time(self, answer: Answer, asked_us: int) -> None:
        if isinstance(answer, Done) and answer.clock_us:
            self._clock.heard(answer.clock_us, asked_us)

    def _look_at_session(self) -> None:
        self._session_end = None
        if self.session_good():
            self._session_end = self._loop.call_at(self._good_until, self._look_at_session)
        self._tell_session()

    def _tell_session(self) -> None:
        good = self.session_good()
        if good != self._session_told:
            self._session_told = good
            if not good:
                log.warning("the controller has not answered for a whole session", seconds=SESSION_SECONDS)
            self.on_session(good)

    def imaged(self) -> None:
        """There is a new image."""
        self._seen = self._seen or self.registered

    def _end(self, reason: str) -> None:
        self.over = reason
        log.error("this run of the broker is not of the cluster any more; stop it", reason=reason)

    # --- what it has against others (R14)

    def accuse(self, broker: int, lane: ConnectionKind, run: bytes, evidence: Evidence | None) -> None:
        """Told at once, and with each heartbeat while it stands: a new controller must hear of it, too."""
        if evidence is None:
            self._accused.pop((broker, lane), None)
        else:
            self._accused[broker, lane] = (run, evidence)
            self._report(broker, lane)

    def _report(self, broker: int, lane: ConnectionKind) -> None:
        run, evidence = self._accused[broker, lane]
        known = self._image().brokers.get(broker)
        if known is None or known.incarnation != run or known.fenced or not self.registered:
            return
        assert self._registration is not None
        report = Report(self._registration.broker_id, self.incarnation, broker, run, evidence.value)
        task = asyncio.create_task(self._tell(report))
        self._reports[task] = None
        task.add_done_callback(self._reports.pop)

    async def _tell(self, report: Report) -> None:
        try:
            await self._ask(report, HEARTBEAT_SECONDS)
        except TidelogError as error:
            log.debug("a report did not arrive", broker=report.reported, error=str(error))
