"""Handles the requests that brokers send to the controller.

A request is answered once its result, and everything that the result rests on, is committed. Neighbours:
`membership.wire` defines the messages, `core.metadata` makes the decisions, `changes` commits them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, assert_never

import structlog

from tidelog.errors import InternalError, InvalidRequest, TidelogError, Unavailable, VersionConflict
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.controller import registration
from tidelog_broker.core.metadata.controller.upkeep import stop
from tidelog_broker.core.metadata.decisions import isr_changes
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.membership.cluster_clock import ClusterClock, SteadyClock
from tidelog_broker.membership.wire import (
    AllocateBlock,
    Answer,
    Block,
    Call,
    Called,
    ChangeIsr,
    Confirm,
    Done,
    Heartbeat,
    Known,
    LoseReplicas,
    Register,
    Report,
    Request,
    Settled,
    failed,
)
from tidelog_broker.quorum.active_controller import ActiveController
from tidelog_broker.quorum.changes import MetadataChanges
from tidelog_broker.quorum.committed_image import CommittedImage
from tidelog_broker.quorum.leadership import ControllerLeadership

log = structlog.get_logger(__name__)

CLOCKS_TO_MOVE: Final = 3
"""A broker loses its leaderships for a wrong clock only if at least so many clocks were compared (R18)."""

ServeCall = Callable[[str, bytes], Awaitable[bytes]]
"""Serves a client's request, given its rpc and its bytes; returns the response. Raises `TidelogError`."""


class RequestHandler:
    """Answers requests as the controller, or says which broker is the controller."""

    def __init__(
        self,
        committed: CommittedImage,
        leadership: ControllerLeadership,
        changes: MetadataChanges,
        clock: ClusterClock,
        now_ms: Callable[[], int],
        serve_call: ServeCall,
    ) -> None:
        """`now_ms`: the clock of sessions and reports."""
        self._committed = committed
        self._leadership = leadership
        self._changes = changes
        self._clock = clock
        self._now_ms = now_ms
        self._serve_call = serve_call
        self._steady = SteadyClock(clock.wall, clock.elapsed, skew_us_max=clock.skew_us_max)
        """The cluster's clock while this broker's clock is the only one."""

    def __repr__(self) -> str:
        return f"<RequestHandler active={self._leadership.active}>"

    async def answer(self, request: Request) -> Answer:
        """Never raises: an error is an answer, too."""
        try:
            active = self._leadership.active
            if active is None:
                raise self._leadership.not_controller()
            return await self._do(active, request)
        except TidelogError as error:
            return failed(error)
        except Exception as error:
            log.exception(
                "the controller failed to answer a request of a broker", request=repr(request)[:200]
            )
            return failed(
                InternalError(
                    f"the controller failed with an internal error ({type(error).__name__}); see its log"
                )
            )

    async def _do(self, active: ActiveController, request: Request) -> Answer:
        match request:
            case Register():
                return await self._register(active, request)
            case Heartbeat():
                return await self._heard(active, request)
            case Report():
                active.report(request, self._now_ms())
                return Done()
            case ChangeIsr():
                return await self._change_isr(request)
            case LoseReplicas(broker, incarnation, partitions):
                return await self._changed(
                    lambda image: registration.lose(
                        image, broker, incarnation, partitions, active.deprioritized.of
                    )
                )
            case Settled(broker, incarnation, settled):
                known = active.tip.brokers.get(broker)
                if known is not None and known.incarnation == incarnation:
                    now_ms = self._now_ms()
                    active.handovers.settled(broker, settled, now_ms)
                    active.keep_up(now_ms)
                return Done(self._committed.now.version)
            case AllocateBlock(broker, count):
                done = await self._changes.change(
                    lambda image: decide.allocate_producer_ids(image, broker, count)
                )
                return Block(done.image.next_producer_id - count, count)
            case Confirm():
                await self._changes.confirm()
                return Done(self._committed.now.version)
            case Known(broker, directory_id):
                await self._changes.confirm()
                image = self._committed.now
                shown = image.brokers.get(broker)
                return Done(image.version if shown is not None and shown.directory_id == directory_id else 0)
            case Call(rpc, body):
                response = await self._serve_call(rpc, body)
                return Called(response, self._committed.now.version)
            case _:
                assert_never(request)

    async def _changed(self, decision: Callable[[ClusterImage], Command | None]) -> Done:
        return Done((await self._changes.change(decision)).image.version)

    async def _register(self, active: ActiveController, request: Register) -> Done:
        asked, now_ms = request.registration(), self._now_ms()
        done = await self._changed(
            lambda image: registration.register(
                image, asked, active.sessions, now_ms, active.deprioritized.of
            )
        )
        active.sessions.heard(active.tip, asked.broker_id, asked.incarnation, self._now_ms())
        active.clocks.heard(asked.broker_id, request.clock_us, self._clock.elapsed())
        return Done(done.version, self._clock_us(active))

    async def _heard(self, active: ActiveController, beat: Heartbeat) -> Done:
        broker, run = beat.broker_id, beat.incarnation
        if broker not in active.tip.brokers:
            raise InvalidRequest(f"broker {broker} is not registered; it may have been unregistered")
        if beat.unanswered and active.tip.brokers[broker].incarnation == run:
            # A broker that hears no answers must not lead. Once it hears this one, heartbeats count again.
            return Done(self._committed.now.version)
        if not active.sessions.heard(active.tip, broker, run, self._now_ms()):
            raise VersionConflict(f"this run of broker {broker} is not the registered one; register again")
        elapsed_us = self._clock.elapsed()
        active.clocks.heard(broker, beat.clock_us, elapsed_us)
        known = active.clocks.now(active.tip, elapsed_us)
        # With two clocks it is not known which one is off, so leaders stay where they are.
        yields = beat.clock_yields and known is not None and known.clocks >= CLOCKS_TO_MOVE
        active.deprioritized.heard(broker, run, beat.damaged, clock_off=beat.clock_off, clock_yields=yields)
        active.feature_levels.heard(broker, run, beat.feature_level)
        if beat.stopping:
            return await self._changed(lambda image: stop(image, broker, run, active.deprioritized.of))
        wished = active.handovers.to_settle(active.tip, broker, self._now_ms())
        return Done(self._committed.now.version, self._clock_us(active), wished)

    def _clock_us(self, active: ActiveController) -> int:
        """The cluster's clock (R18); 0: it is not known yet.

        A new controller continues with what the previous one told this broker, until the others report.
        """
        alone = self._steady.now()
        known = active.clocks.now(active.tip, self._clock.elapsed())
        if known is None:
            return self._clock.cluster_us() or 0
        return alone if known.clocks == 1 else known.us

    async def _change_isr(self, request: ChangeIsr) -> Done:
        results: tuple[isr_changes.Result, ...] = ()

        def decision(image: ClusterImage) -> Command | None:
            nonlocal results
            command, results = isr_changes.change_isr(image, request.proposals)
            return command

        done = await self._changed(decision)
        for result in results:
            if isinstance(result, isr_changes.Refused):
                if result.refusal.ask_again:
                    raise Unavailable(result.reason, retry_after_ms=50)
                # The leader learns it from the image (R4).
                log.info("the controller refused an ISR change", reason=result.reason)
        return done
