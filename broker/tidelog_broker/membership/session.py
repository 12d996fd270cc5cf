"""A broker's session with the controller: it registers this run, and heartbeats keep it alive.

The controller, on whichever broker it is, decides on what the session asks for. By this broker's own
clock the session is good for `SESSION_SECONDS` after each answered heartbeat: a broker that cannot know
whether it still counts as alive must not answer as a leader where that matters (N5). A heartbeat also
reports why this broker should not lead (R6): damaged replicas, and a clock that is off.

Neighbours: `controller_client` carries the requests, `failure_reporter` reports other brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from tidelog.errors import IndefiniteError, InvalidRequest, TidelogError, Unavailable
from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, ReplicaName
from tidelog_broker.core.metadata.controller.handovers import Led
from tidelog_broker.core.metadata.controller.liveness import HEARTBEAT_MS, SESSION_MS
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import BrokerError, NotConnected, NotController
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.membership.failure_reporter import AskController, FailureReporter, shows_run
from tidelog_broker.membership.wire import Answer, Done, Heartbeat, Register, Settled

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS: Final = HEARTBEAT_MS / 1000
SESSION_SECONDS: Final = SESSION_MS / 1000

TAKEN_SECONDS_MAX: Final = 3 * SESSION_SECONDS
"""How long a start waits for the session of another broker with its id to end."""


class RegistrationRefused(BrokerError):
    """The cluster refuses this broker; the message says what to do."""


class SessionListener(Protocol):
    """The broker whose session this is. All on the event loop; nothing may block."""

    def session_changed(self, good: bool) -> None:
        """The session became good, or ended."""

    def damaged_replicas(self) -> tuple[ReplicaName, ...]:
        """The replicas here with a damaged range (2c)."""

    def handovers_requested(self, leaderships: tuple[Led, ...]) -> None:
        """The controller asks this broker to settle these leaderships for a handover (N5)."""


class Session:
    """Registration and heartbeats of one run. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: int,
        incarnation: bytes,
        ask: AskController,
        image: Callable[[], ClusterImage],
        clock: ClusterClock,
        reporter: FailureReporter,
        listener: SessionListener,
    ) -> None:
        """`clock` is told the cluster's clock that the controller sends."""
        self._loop = asyncio.get_running_loop()
        self._broker_id = broker_id
        self.incarnation = incarnation
        self._ask = ask
        self._image = image
        self._clock = clock
        self._reporter = reporter
        self._listener = listener
        self._registration: Registration | None = None
        self._seen = False
        """The image has shown this run."""
        self.over = ""
        """Why this run is no longer a member of the cluster; empty: it still is."""
        self.stopping = False
        self._good_until = 0.0
        self._session_told = False
        self._session_end: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = self.over or ("registered" if self.registered else "not registered")
        return f"<Session {state} good={self.session_good()}>"

    @property
    def registered(self) -> bool:
        """R10: the image here shows this run."""
        return self._registration is not None and shows_run(self._image(), self._broker_id, self.incarnation)

    def session_good(self) -> bool:
        """By this broker's clock, the controller counts this broker as alive."""
        return self._loop.time() < self._good_until

    async def register(self, registration: Registration) -> None:
        """Returns once the controller has registered this run; heartbeats follow.

        Raises `RegistrationRefused`.
        """
        self._registration = registration
        deadline = self._loop.time() + TAKEN_SECONDS_MAX
        while True:
            asked_us = self._clock.elapsed()
            request = Register.of(registration, self._clock.wall())
            try:
                self._learn_time(await self._ask(request, SESSION_SECONDS), asked_us)
                break
            except (NotController, NotConnected, IndefiniteError) as error:
                log.debug("this broker is not registered yet; it tries again", reason=str(error))
                deadline = self._loop.time() + TAKEN_SECONDS_MAX
            except TidelogError as error:
                if not error.retriable or (isinstance(error, Unavailable) and self._loop.time() >= deadline):
                    raise RegistrationRefused(f"the cluster refuses this broker: {error}") from error
            await asyncio.sleep(HEARTBEAT_SECONDS)
        self._extend(self._loop.time())
        self._task = asyncio.create_task(self._send_heartbeats(), name="heartbeats")

    async def step_aside(self) -> bool:
        """Tells the controller, now and with each later heartbeat, that this broker is about to stop.

        False: no controller answered, although one would have been elected within the time.
        """
        self.stopping = True
        before = self._good_until
        await self._beat(self._loop.time())
        return self._good_until > before

    async def report_settled(self, settled: Sequence[Led]) -> None:
        """Tells the controller which leaderships it may give to other brokers now. Raises `TidelogError`."""
        await self._ask(Settled(self._broker_id, self.incarnation, tuple(settled)), HEARTBEAT_SECONDS)

    async def stop(self) -> None:
        if self._session_end is not None:
            self._session_end.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send_heartbeats(self) -> None:
        while not self.over:
            began = self._loop.time()
            try:
                await self._beat(began)
            except Exception:
                log.exception("a heartbeat failed unexpectedly; the next one is sent all the same")
            await asyncio.sleep(max(0.0, began + HEARTBEAT_SECONDS - self._loop.time()))

    async def _beat(self, now: float) -> None:
        registration = self._registration
        assert registration is not None, "registered once"
        registered = self.registered
        if self._seen and self._broker_id not in self._image().brokers:
            # Without this the broker would register again at once, although it was unregistered (R6).
            self._end("the broker was unregistered. Format its data directory again to use it")
            return
        clock_us = self._clock.wall()
        beat = Heartbeat(
            self._broker_id,
            self.incarnation,
            self.stopping,
            unanswered=not self.session_good(),
            damaged=self._listener.damaged_replicas(),
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
                # A broker that is no longer a member does not receive the entry that says so.
                self._end(str(error))
            return
        except TidelogError as error:
            if not error.retriable and not registered and self._seen:
                self._end(str(error))
            # In all other cases the image shows sooner or later which run is the registered one.
            return
        self._extend(now)
        self._learn_time(answer, asked_us)
        if isinstance(answer, Done) and answer.wished:
            self._listener.handovers_requested(answer.wished)
        self._reporter.repeat()

    def _extend(self, asked: float) -> None:
        """The controller answered a request that was sent at `asked`."""
        self._good_until = asked + SESSION_SECONDS
        if self._session_end is None:
            self._session_end = self._loop.call_at(self._good_until, self._check_session)
        self._tell_session()

    def _learn_time(self, answer: Answer, asked_us: int) -> None:
        if isinstance(answer, Done) and answer.clock_us:
            self._clock.heard(answer.clock_us, asked_us)

    def _check_session(self) -> None:
        self._session_end = None
        if self.session_good():
            self._session_end = self._loop.call_at(self._good_until, self._check_session)
        self._tell_session()

    def _tell_session(self) -> None:
        good = self.session_good()
        if good != self._session_told:
            self._session_told = good
            if not good:
                log.warning("the controller did not answer for a whole session", seconds=SESSION_SECONDS)
            self._listener.session_changed(good)

    def image_changed(self) -> None:
        """There is a new image."""
        self._seen = self._seen or self.registered

    def _end(self, reason: str) -> None:
        self.over = reason
        log.error(
            "this run of the broker is no longer a member of the cluster; stop the broker", reason=reason
        )
