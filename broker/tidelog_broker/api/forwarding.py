"""Takes requests that only the controller can serve to the controller, whichever broker receives them.

A broker that is not the controller sends the request to it verbatim, over the control connection of the
two brokers, and errors come back with their type. The answer is given once this broker's own
image shows the change. Neighbours: `admin_service` names the requests, `quorum.request_handler`
passes on what other brokers forward.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from tidelog.errors import InvalidRequest, TimedOut
from tidelog_broker.errors import NotController
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.membership.wire import Call, Called
from tidelog_broker.quorum.quorum_controller import QuorumController

FORWARD_SECONDS_MAX: Final = 15.0
"""How long a forwarded request may take, and then this broker to hear of the change."""


class ControllerCall(NamedTuple):
    """One rpc."""

    name: str
    request: type[Message]
    response: type[Message]
    serve: Callable[[Any], Awaitable[Message]]
    """Serves it on the controller; on other brokers it raises `NotController` before anything is done."""


class Forwarding:
    """Serves rpcs here if this broker is the controller, and forwards them otherwise."""

    def __init__(self, broker: Broker, quorum: QuorumController, calls: Sequence[ControllerCall]) -> None:
        self._broker = broker
        self._quorum = quorum
        self._calls = {call.name: call for call in calls}

    def __repr__(self) -> str:
        return f"<Forwarding of {len(self._calls)} rpcs>"

    def __contains__(self, rpc: str) -> bool:
        return rpc in self._calls

    async def at_controller(self, rpc: str, request: Message) -> Any:
        """The answer to a client's request: the rpc's response. Raises `TidelogError`."""
        call = self._calls[rpc]
        try:
            return await call.serve(request)
        except NotController:
            return call.response.FromString(await self._forward(rpc, request))

    async def serve_call(self, rpc: str, body: bytes) -> bytes:
        """Serves a request that another broker forwarded; never forwards it again. Raises `TidelogError`."""
        call = self._calls.get(rpc)
        if call is None:
            raise InvalidRequest(
                f"the controller does not accept {rpc[:100]!r} from other brokers", field="rpc"
            )
        try:
            request = call.request.FromString(body)
        except DecodeError as error:
            raise InvalidRequest(
                f"a forwarded {rpc} request cannot be read: {error}", field="request"
            ) from None
        return (await call.serve(request)).SerializeToString()

    async def _forward(self, rpc: str, request: Message) -> bytes:
        called = await self._ask(Call(rpc, request.SerializeToString()))
        await self._until_heard(called)
        await self._broker.applied(called.version)
        return called.response

    async def _ask(self, call: Call) -> Called:
        called = await self._quorum.ask(call, FORWARD_SECONDS_MAX)
        assert isinstance(called, Called), called
        return called

    async def _until_heard(self, called: Called) -> None:
        """The image here is as new as the controller's was."""
        try:
            await self._quorum.until(
                lambda: self._quorum.image.version >= called.version, FORWARD_SECONDS_MAX
            )
        except TimeoutError:
            raise TimedOut("the change is committed, but this broker did not receive it in time") from None
