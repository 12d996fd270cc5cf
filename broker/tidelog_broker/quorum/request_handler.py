"""What the requests of brokers mean to the controller, and what it answers.

Neighbours: `membership.wire` has the words, `core.metadata` the decisions. An answer is given
when what it says is committed, and everything that it rests on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, assert_never

import structlog

from tidelog.errors import InternalError, InvalidRequest, TidelogError, Unavailable, VersionConflict
from tidelog_broker.core.metadata import decide, isr_changes, registration
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.upkeep import stop
from tidelog_broker.membership.cluster_clock import SteadyClock
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

if TYPE_CHECKING:
    from tidelog_broker.quorum.active_controller import ActiveController
    from tidelog_broker.quorum.quorum_controller import QuorumController

log = structlog.get_logger(__name__)

CLOCKS_TO_MOVE: Final = 3
"""So many clocks must have been compared before a broker loses its leaderships for its own (R18)."""

ServeCall = Callable[[str, bytes], Awaitable[bytes]]
"""A client's request, by its rpc, to its response; raises `TidelogError`."""


class RequestHandler:
    """See the module."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller
        clock = controller.clock
        self._steady = SteadyClock(clock.wall, clock.elapsed, skew_us_max=clock.skew_us_max)
        """The cluster's clock while there is one broker to ask."""
        self.serve_call: ServeCall | None = None
        """None: the broker does not serve yet."""

    async def answer(self, request: Request) -> Answer:
        """Never raises: what went wrong is an answer."""
        try:
            active = self._controller.active
            if active is None:
                raise self._controller.elsewhere()
            return await self._do(active, request)
        except TidelogError as error:
            return failed(error)
        except Exception as error:
            log.exception("a request of a broker failed", request=repr(request)[:200])
            return failed(InternalError(f"an internal error ({type(error).__name__}) of the controller"))

    async def _do(self, active: ActiveController, request: Request) -> Answer:
        match request:
            case Register():
                return await self._register(active, request)
            case Heartbeat():
                return await self._heard(active, request)
            case Report():
                active.report(request, self._controller.now_ms)
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
                    now_ms = self._controller.now_ms
                    active.handovers.settled(broker, settled, now_ms)
                    active.keep_up(now_ms)
                return Done(self._controller.image.version)
            case AllocateBlock(broker, count):
                done = await self._controller.change(
                    lambda image: decide.allocate_producer_ids(image, broker, count)
                )
                return Block(done.image.next_producer_id - count, count)
            case Confirm():
                await self._controller.confirm()
                return Done(self._controller.image.version)
            case Known(broker, directory_id):
                await self._controller.confirm()
                image = self._controller.image
                shown = image.brokers.get(broker)
                return Done(image.version if shown is not None and shown.directory_id == directory_id else 0)
            case Call(rpc, body):
                if self.serve_call is None:
                    raise Unavailable("the controller does not serve clients yet", retry_after_ms=500)
                response = await self.serve_call(rpc, body)
                return Called(response, self._controller.image.version)
            case _:
                assert_never(request)

    async def _changed(self, decision: Callable[[ClusterImage], Command | None]) -> Done:
        return Done((await self._controller.change(decision)).image.version)

    async def _register(self, active: ActiveController, request: Register) -> Done:
        asked, now_ms = request.registration(), self._controller.now_ms
        done = await self._changed(
            lambda image: registration.register(
                image, asked, active.sessions, now_ms, active.deprioritized.of
            )
        )
        active.sessions.heard(active.tip, asked.broker_id, asked.incarnation, self._controller.now_ms)
        active.clocks.heard(asked.broker_id, request.clock_us, self._controller.clock.elapsed())
        return Done(done.version, self._clock_us(active))

    async def _heard(self, active: ActiveController, beat: Heartbeat) -> Done:
        broker, run = beat.broker_id, beat.incarnation
        if broker not in active.tip.brokers:
            raise InvalidRequest(f"broker {broker} is not registered; it may have been unregistered")
        if beat.unanswered and active.tip.brokers[broker].incarnation == run:
            # It must not lead if nobody can tell it what it leads. The answer, once it arrives, ends that.
            return Done(self._controller.image.version)
        if not active.sessions.heard(active.tip, broker, run, self._controller.now_ms):
            raise VersionConflict(f"this run of broker {broker} is not the registered one; register again")
        elapsed_us = self._controller.clock.elapsed()
        active.clocks.heard(broker, beat.clock_us, elapsed_us)
        known = active.clocks.now(active.tip, elapsed_us)
        # Of two clocks nobody knows which is off: leaders stay.
        yields = beat.clock_yields and known is not None and known.clocks >= CLOCKS_TO_MOVE
        active.deprioritized.heard(broker, run, beat.damaged, clock_off=beat.clock_off, clock_yields=yields)
        active.feature_levels.heard(broker, run, beat.feature_level)
        if beat.stopping:
            return await self._changed(lambda image: stop(image, broker, run, active.deprioritized.of))
        wished = active.handovers.wished(active.tip, broker, self._controller.now_ms)
        return Done(self._controller.image.version, self._clock_us(active), wished)

    def _clock_us(self, active: ActiveController) -> int:
        """The cluster's clock (R18); 0: it is not known yet.

        A new controller goes on with what the one before told this broker, until it has heard the others.
        """
        alone = self._steady.now()
        known = active.clocks.now(active.tip, self._controller.clock.elapsed())
        if known is None:
            return self._controller.clock.cluster_us() or 0
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
                # The image says so, too (R4).
                log.info("a change of an ISR was refused", reason=result.reason)
        return done
