"""The rpcs of the `Admin` service for brokers: cordon, drain, prepare a stop, unregister, choose voters.

They run on the controller (`forwarding`), except for the waiting of `until_prepared`. `core.metadata`
decides; this module turns requests into decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import Message

from tidelog import cluster_wire
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.model import StopAnswer, StopHindrance
from tidelog_broker.core.metadata.commands import ChangeBroker, Command
from tidelog_broker.core.metadata.controller import registration
from tidelog_broker.core.metadata.decisions import quorum_plan, reassignment, stopping
from tidelog_broker.core.metadata.image import ClusterImage, Share
from tidelog_broker.quorum.active_controller import ActiveController
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_proto import admin_pb2 as pb

HINDRANCES_SHOWN_MAX: Final = 100
"""Named in one answer; all are counted."""

PREPARE_SECONDS_MAX: Final = 600.0
"""How long one request may wait until a broker can stop."""

PREPARE_LOOK_SECONDS: Final = 0.5
"""How often the controller is asked meanwhile, if nothing changes."""

PREPARE_PAUSE_SECONDS: Final = 0.05
"""And how often at most, if much does."""

NamesBroker = (
    pb.CordonRequest
    | pb.UncordonRequest
    | pb.DrainRequest
    | pb.PrepareStopRequest
    | pb.CancelStopRequest
    | pb.UnregisterBrokerRequest
    | pb.AddVoterRequest
    | pb.RemoveVoterRequest
)


class BrokerRequests:
    """The rpcs that change brokers; every method raises `TidelogError`."""

    def __init__(self, quorum: QuorumController) -> None:
        self._quorum = quorum

    async def cordon(self, request: pb.CordonRequest) -> pb.CordonResponse:
        await self._cordon(request, True)
        return pb.CordonResponse()

    async def uncordon(self, request: pb.UncordonRequest) -> pb.UncordonResponse:
        await self._cordon(request, False)
        return pb.UncordonResponse()

    async def _cordon(self, request: pb.CordonRequest | pb.UncordonRequest, cordoned: bool) -> None:
        broker = _named(request)
        version = _expected(request)
        await self._quorum.change(
            lambda image: reassignment.cordon(image, broker, cordoned, expected_version=version)
        )

    async def drain(self, request: pb.DrainRequest) -> pb.DrainResponse:
        broker = _named(request)
        change = await self._quorum.change(lambda image: reassignment.drain(image, broker))
        begun = change.command.changes if isinstance(change.command, ChangeBroker) else ()
        return pb.DrainResponse(
            replicas_left=change.image.shares.get(broker, Share()).replicas, begun=len(begun)
        )

    async def unregister(self, request: pb.UnregisterBrokerRequest) -> pb.UnregisterBrokerResponse:
        broker = _named(request)

        def command(image: ClusterImage) -> Command:
            active = self._active()
            quorum_plan.check_can_go(active.node.configuration, broker)
            return registration.unregister(
                image,
                broker,
                active.sessions,
                self._quorum.now_ms,
                only_if_empty=request.only_if_empty,
                expected_version=_expected(request),
            )

        await self._quorum.change(command)
        return pb.UnregisterBrokerResponse()

    async def add_voter(self, request: pb.AddVoterRequest) -> pb.AddVoterResponse:
        broker = _named(request)

        def command(image: ClusterImage) -> Command | None:
            active = self._active()
            if active.alone:
                raise InvalidRequest(
                    "a second broker cannot vote before the formation marker (the setting `formation`) says "
                    "that the cluster is formatted; try again once it does",
                    field="broker",
                )
            return quorum_plan.add_voter(image, broker, active.voters_wanted)

        await self._quorum.change(command)
        return pb.AddVoterResponse()

    async def remove_voter(self, request: pb.RemoveVoterRequest) -> pb.RemoveVoterResponse:
        broker = _named(request)
        await self._quorum.change(
            lambda image: quorum_plan.remove_voter(self._active().node.configuration, image, broker)
        )
        return pb.RemoveVoterResponse()

    # --- stopping (K2)

    async def prepare_stop(self, request: pb.PrepareStopRequest) -> pb.PrepareStopResponse:
        """Checks once; a client that has to wait asks again."""
        broker = _named(request)
        change = await self._quorum.change(lambda image: stopping.prepare_stop(image, broker))
        found = stopping.hindered(change.image, broker)
        shown = found[:HINDRANCES_SHOWN_MAX]
        return cluster_wire.stop_answer_to_proto(
            StopAnswer(
                ready=stopping.is_prepared(change.image, broker, found),
                hindrances=tuple(
                    StopHindrance(one.stream, one.partition, one.hindrance.value, one.hindrance.blocks)
                    for one in shown
                ),
                hindrance_count=len(found),
            )
        )

    async def cancel_stop(self, request: pb.CancelStopRequest) -> pb.CancelStopResponse:
        broker = _named(request)
        await self._quorum.change(lambda image: stopping.cancel_stop(image, broker))
        return pb.CancelStopResponse()

    async def until_prepared(
        self,
        request: pb.PrepareStopRequest,
        here: int,
        ask: Callable[[pb.PrepareStopRequest], Awaitable[pb.PrepareStopResponse]],
    ) -> Message:
        """Asks the controller until the broker can stop, or the request's time is over; the last answer.

        Raises what the controller raises; what is retriable, only at the end.
        """
        seconds = request.timeout_ms / 1000
        if seconds > PREPARE_SECONDS_MAX:
            raise InvalidRequest(
                f"timeout_ms is {request.timeout_ms}; give at most {PREPARE_SECONDS_MAX * 1000:.0f}",
                field="timeout_ms",
            )
        broker = request.broker_id if request.HasField("broker_id") else here
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            seen = self._quorum.image
            last: pb.PrepareStopResponse | TidelogError
            try:
                last = await ask(pb.PrepareStopRequest(broker_id=broker))
            except TidelogError as error:
                if not error.retriable:
                    raise
                last = error
            over = loop.time() >= deadline
            if isinstance(last, pb.PrepareStopResponse) and (last.ready or over):
                return last
            if over and isinstance(last, TidelogError):
                raise last
            await self._changed(seen, min(PREPARE_LOOK_SECONDS, deadline - loop.time()))

    async def _changed(self, seen: ClusterImage, seconds: float) -> None:
        await asyncio.sleep(min(PREPARE_PAUSE_SECONDS, max(0.0, seconds)))
        try:
            await self._quorum.until(lambda: self._quorum.image is not seen, max(0.0, seconds))
        except TimeoutError:
            return

    def _active(self) -> ActiveController:
        active = self._quorum.active
        assert active is not None, "only the controller decides"
        return active


def _expected(request: pb.CordonRequest | pb.UncordonRequest | pb.UnregisterBrokerRequest) -> int | None:
    return request.expected_version if request.HasField("expected_version") else None


def _named(request: NamesBroker) -> int:
    if not request.HasField("broker_id"):
        raise InvalidRequest("the request names no broker; give broker_id", field="broker_id")
    return request.broker_id
